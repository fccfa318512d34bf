"""Layers. Knows nothing of tokens."""

from quasirnn.nn.layer import LayerGates, LayerState, QRNNLayer, QRNNLayerOutput
from quasirnn.nn.qrnn import QRNN

__all__ = ["QRNN", "LayerGates", "LayerState", "QRNNLayer", "QRNNLayerOutput"]
