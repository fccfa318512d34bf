"""Functions on tensors: pooling, the linear recurrence and the layer. Knows nothing of nn.Module."""

from quasirnn.ops.layer import LayerOutput, qrnn_layer
from quasirnn.ops.pooling import f_pool, fo_pool, fused_pool, ifo_pool, linear_recurrence

__all__ = ["LayerOutput", "f_pool", "fo_pool", "fused_pool", "ifo_pool", "linear_recurrence", "qrnn_layer"]
