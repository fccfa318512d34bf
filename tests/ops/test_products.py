"""Which library multiplies: torch's own switches are honoured."""

import pytest
import torch

from quasirnn import QRNN
from quasirnn.ops import backends

pytestmark = [
    pytest.mark.skipif(
        backends.kernels is None or not torch.backends.mkldnn.is_available(), reason="there is one library only"
    ),
    # torch's own flags() warns about a part of itself that this build lacks.
    pytest.mark.filterwarnings("ignore:TF32 acceleration on top of oneDNN"),
]


def gates_and_gradients(T=4, B=8, H=320):
    """Of a layer whose product oneDNN is chosen for on every CPU; the first has no non-linearity in it."""
    torch.manual_seed(1)
    rnn, x = QRNN(H, H), torch.randn(T, B, H, requires_grad=True)
    output = rnn(x)[0]
    upstream = torch.randn(T, B, H)
    return [output.detach(), *torch.autograd.grad(output, [x, *rnn.parameters()], upstream)]


@pytest.fixture(autouse=True)
def two_threads():
    """On one, Intel's BLAS is chosen for everything on Intel's CPUs."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def differences(here, there):
    return [(a - b).abs().max() / b.abs().max() for a, b in zip(here, there, strict=True)]


def test_the_switch_of_onednn():
    """Off, all products are BLAS's and the bits are those of a build without it; on, sums are in another order."""
    fast = gates_and_gradients()
    with torch.backends.mkldnn.flags(enabled=False):
        plain, again = gates_and_gradients(), gates_and_gradients()
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))
    assert not torch.equal(fast[0], plain[0])
    assert not torch.equal(fast[1], plain[1])
    assert max(differences(fast, plain)) < 1e-5


def test_single_steps_obey_it_too():
    torch.manual_seed(1)
    rnn, x = QRNN(640, 640).eval(), torch.randn(1, 2, 640)
    with torch.no_grad():
        fast = rnn(x)[0]
        with torch.backends.mkldnn.flags(enabled=False):
            assert not torch.equal(rnn(x)[0], fast)


@pytest.fixture
def precision():
    """torch's settings of float32 products, put back afterwards."""
    before = torch.backends.mkldnn.matmul.fp32_precision, torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before[1])
    torch.backends.mkldnn.matmul.fp32_precision = before[0]


@pytest.mark.parametrize("how", ["backends", "set_float32_matmul_precision"])
@pytest.mark.parametrize("onednn", [True, False])
def test_products_of_lower_precision_where_they_are_asked_for(precision, how, onednn):
    exact = gates_and_gradients()
    if how == "backends":
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    else:
        torch.set_float32_matmul_precision("medium")
    x = torch.randn(512, 640)
    honoured = (x @ x.T - (x.double() @ x.double().T).float()).abs().max() > 1e-2
    with torch.backends.mkldnn.flags(enabled=onednn):
        rough = gates_and_gradients()
    if not honoured:
        pytest.skip("torch itself multiplies in float32 on this CPU")
    if onednn:
        assert all(1e-4 < each < 0.1 for each in differences(rough, exact)[:3])
    else:
        # As torch.mm: without oneDNN there is no such product.
        assert max(differences(rough, exact)) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_weight_that_is_arranged_once_for_several_chunks(dtype):
    """A long sequence is several products with one weight, a piece of it is one product: oneDNN's bits are the same."""
    torch.manual_seed(1)
    rnn, x = QRNN(320, 320).eval().to(dtype), torch.randn(2048, 1, 320, dtype=dtype)
    with torch.no_grad():
        whole, state, pieces = rnn(x)[0], None, []
        for part in x.split(512 if dtype == torch.float32 else 1024):
            output, state = rnn(part, state)
            pieces.append(output)
    if dtype == torch.float32:
        assert torch.equal(torch.cat(pieces), whole)
    # In bfloat16 torch.mm makes the product of a piece.
    assert differences([torch.cat(pieces).float()], [whole.float()])[0] < 2**-7
