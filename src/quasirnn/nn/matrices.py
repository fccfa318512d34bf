"""Weights as matrices, for optimizers that take two-dimensional parameters only."""

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from quasirnn.nn.layer import QRNNLayer


class _Unflatten(nn.Module):
    """The weight (gates * H, k, D) from the matrix (gates * H, k * D), which shares its order."""

    def __init__(self, kernel_size: int) -> None:
        super().__init__()
        self.kernel_size = kernel_size

    def forward(self, matrix: Tensor) -> Tensor:
        weight: Tensor = matrix.unflatten(1, (self.kernel_size, -1))
        return weight

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight.flatten(1)


def _layers(model: nn.Module) -> list[QRNNLayer]:
    return [module for module in model.modules() if isinstance(module, QRNNLayer)]


def as_matrices(model: nn.Module) -> nn.Module:
    """Turn the weight of every QRNN layer of a model into a matrix (gates * H, k * D), in place, for Muon and the like.

    The model computes the same. Its parameters are new: make the optimizer afterwards, and before saving call
    `from_matrices`, which gives them their form and names back.

    >>> from quasirnn import QRNN
    >>> model = as_matrices(QRNN(3, 4, num_layers=2))
    >>> [tuple(p.shape) for p in model.parameters() if p.ndim == 2]
    [(12, 6), (12, 8)]
    """
    for layer in _layers(model):
        if not parametrize.is_parametrized(layer, "weight"):
            parametrize.register_parametrization(layer, "weight", _Unflatten(layer.kernel_size))
    return model


def from_matrices(model: nn.Module) -> nn.Module:
    """Undo `as_matrices`: the weights have the shape (gates * H, k, D) again, with their current values."""
    for layer in _layers(model):
        if parametrize.is_parametrized(layer, "weight"):
            with torch.no_grad():
                parametrize.remove_parametrizations(layer, "weight")
    return model
