"""What a layer keeps for its backward, counted."""

import pytest
import torch
from torch import Tensor

from quasirnn import QRNN

T, B, D, H = 40, 3, 12, 16


def kept_elements(rnn: QRNN, x: Tensor) -> int:
    """Elements of all tensors that autograd keeps, each memory counted once; the weights, kept anyway, left out."""
    weights = {p.untyped_storage().data_ptr() for p in rnn.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights and tensor.is_floating_point():
            kept[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output, _ = rnn(x)
    assert output.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize(("pooling", "most"), [("f", 3 * H + D), ("fo", 4 * H + D), ("ifo", 5 * H + D)])
def test_one_layer_keeps_gates_cells_and_input(pooling: str, most: int) -> None:
    # Per token: z, f, o, i as the pooling has them, c, and the input. Zoneout's mask is not kept.
    rnn = QRNN(D, H, pooling=pooling, zoneout=0.3)
    assert kept_elements(rnn, torch.randn(T, B, D, requires_grad=True)) <= T * B * most


def test_a_stack_keeps_no_more_per_layer() -> None:
    # The input of the second layer is the output of the first, which has to be kept for the weight's gradient.
    rnn = QRNN(D, H, num_layers=2, zoneout=0.3)
    assert kept_elements(rnn, torch.randn(T, B, D, requires_grad=True)) <= T * B * ((4 * H + D) + (4 * H + H))


def test_inference_keeps_nothing() -> None:
    rnn = QRNN(D, H)
    with torch.no_grad():
        output, (h_n, c_n) = rnn(torch.randn(T, B, D))
    assert not output.requires_grad
    assert not h_n.requires_grad
    assert not c_n.requires_grad
