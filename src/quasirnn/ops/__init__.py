"""Functions on tensors: pooling, the linear recurrence and the layer. Knows nothing of nn.Module."""

from quasirnn.ops.layer import LayerGates, LayerOutput, LayerState, qrnn_layer, register_pooling
from quasirnn.ops.pooling import f_pool, fo_pool, fused_pool, ifo_pool, linear_recurrence

__all__ = [
    "LayerGates",
    "LayerOutput",
    "LayerState",
    "f_pool",
    "fo_pool",
    "fused_pool",
    "ifo_pool",
    "linear_recurrence",
    "qrnn_layer",
    "register_pooling",
]
