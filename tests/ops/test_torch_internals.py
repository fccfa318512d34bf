"""Private parts of torch: what is used in their place where a version lacks them gives the same results."""

import pytest
import torch
from torch.func import grad

from processes import run_with_torch
from quasirnn import QRNN
from quasirnn.benchmarks.correctness import plain_products
from quasirnn.benchmarks.passes import onednn_pass
from quasirnn.ops import backends, torch_internals


def results() -> list[torch.Tensor]:
    """The layer on every route that asks for one of the private parts."""
    torch.manual_seed(1)
    rnn, x = QRNN(5, 7, 2), torch.randn(9, 3, 5)
    output = rnn(x)[0]
    gradient = torch.autograd.grad(output.square().sum(), list(rnn.parameters()))
    transformed = grad(lambda x: rnn(x)[0].square().sum())(x)
    with torch.no_grad():
        plain = rnn(x)[0]
        with torch.autocast("cpu", torch.bfloat16):
            cast = rnn(x)[0]
        traced = torch.jit.trace(rnn, x)(x)[0]
    return [output, *gradient, transformed, plain, cast, traced]


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", torch_internals.FALLBACKS)
def test_fallbacks_give_the_same_results(monkeypatch, name):
    expected = results()
    monkeypatch.setattr(torch_internals, name, torch_internals.FALLBACKS[name])
    for got, there in zip(results(), expected, strict=True):
        # Composed of single operations, bfloat16 rounds in more places.
        torch.testing.assert_close(got, there, **({"atol": 0.01, "rtol": 0.02} if got.dtype == torch.bfloat16 else {}))


def test_this_version_has_them_all():
    """Where this fails, a new version of torch has changed: the layer is right but slower, see torch_internals."""
    used = {name: getattr(torch_internals, name) for name in torch_internals.FALLBACKS}
    assert not [name for name, function in used.items() if function is torch_internals.FALLBACKS[name]]


def test_correctness_is_checked_without_onednn(monkeypatch):
    monkeypatch.setattr(torch_internals, "onednn_linear", None)
    assert len(plain_products(torch.float32)) == 1
    assert onednn_pass(4, 3, 2, "training") is None


PROGRAM = """
import torch
from quasirnn import QRNN, quantize
torch.manual_seed(1)
rnn, x = QRNN(320, 320), torch.randn(64, 4, 320)
with torch.no_grad():
    whole, small = rnn(x)[0], quantize(rnn)(x)[0]
torch.backends.mkldnn.set_flags(False)
with torch.no_grad():
    assert torch.equal(whole, rnn(x)[0]), "BLAS in both"
print(float(whole.double().sum()), float(small.double().sum()))
"""


@pytest.mark.skipif(backends.kernels is None, reason="plain PyTorch has no kernels to look them up")
def test_kernels_do_without(monkeypatch):
    monkeypatch.setenv("QUASIRNN_TORCH_INTERNALS", "off")
    done = run_with_torch(PROGRAM)
    done.check_returncode()
    torch.manual_seed(1)
    rnn, x = QRNN(320, 320), torch.randn(64, 4, 320)
    with torch.no_grad():
        expected = float(rnn(x)[0].double().sum())
    assert float(done.stdout.split()[0]) == pytest.approx(expected, rel=1e-4)
    assert float(done.stdout.split()[1]) == pytest.approx(expected, rel=0.05)
