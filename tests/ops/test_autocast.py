"""Under autocast the layer's inputs are cast at the operator's edge and its state is not."""

import pytest
import torch

from ops.cases import Case, inputs, public
from quasirnn.ops import qrnn_layer

pytestmark = pytest.mark.backends

CASE = Case("layer", T=9, B=3, H=5, pooling="ifo", k=2, state=True, gates=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_is_a_cast_of_everything_but_the_state(dtype):
    tensors = inputs(CASE, torch.float32)
    cast = {name: value if name == "c0" else value.to(dtype) for name, value in tensors.items()}
    with torch.autocast("cpu", dtype):
        found = public(CASE, tensors)
    wanted = public(CASE, cast)
    for name in wanted:
        assert torch.equal(found[name], wanted[name]), name
    assert (found["h"].dtype, found["c_last"].dtype) == (dtype, torch.float32)


def test_gradients_come_back_in_the_type_of_their_leaves():
    leaves = {name: value.requires_grad_() for name, value in inputs(CASE, torch.float32).items()}
    with torch.autocast("cpu", torch.bfloat16):
        loss = sum(value.float().sum() for value in public(CASE, leaves).values())
    loss.backward()
    assert all(leaf.grad.dtype == torch.float32 for leaf in leaves.values())


def test_a_mixture_of_types_is_an_error_outside_and_none_inside():
    x, weight = torch.randn(4, 2, 3), torch.randn(6, 1, 3, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match="weight must have the type of x"):
        qrnn_layer(x, weight)
    with torch.autocast("cpu", torch.bfloat16):
        assert qrnn_layer(x, weight).h.dtype == torch.bfloat16


def test_float64_is_left_alone():
    tensors = inputs(CASE, torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        found = public(CASE, tensors)
    assert torch.equal(found["h"], public(CASE, tensors)["h"])
    assert found["h"].dtype == torch.float64
