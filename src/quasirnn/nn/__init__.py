"""Layers. Knows nothing of tokens."""

from quasirnn.nn.layer import LayerGates, LayerState, QRNNLayer, QRNNLayerOutput
from quasirnn.nn.matrices import as_matrices, from_matrices
from quasirnn.nn.qrnn import QRNN
from quasirnn.nn.quantized import quantize

__all__ = [
    "QRNN",
    "LayerGates",
    "LayerState",
    "QRNNLayer",
    "QRNNLayerOutput",
    "as_matrices",
    "from_matrices",
    "quantize",
]
