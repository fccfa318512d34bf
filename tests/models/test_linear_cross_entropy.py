"""Softmax and loss in chunks: the numbers of the plain computation in double, and never more than a chunk of logits."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from quasirnn.models import linear_cross_entropy as module
from quasirnn.models.linear_cross_entropy import linear_cross_entropy, token_losses

TOKENS, HIDDEN, WORDS = 23, 8, 41


def inputs(tokens: int = TOKENS, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    h, weight, bias = torch.randn(tokens, HIDDEN), torch.randn(WORDS, HIDDEN), torch.randn(WORDS)
    return h.to(dtype), weight.to(dtype), bias.to(dtype), torch.randint(WORDS, (tokens,))


def with_gradients(compute, h, weight, bias, targets, upstream=1.0):
    """The loss and the gradient of each input."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (h, weight, bias)]
    loss = compute(*leaves, targets)
    loss.backward(torch.tensor(upstream, dtype=loss.dtype))
    return [loss.detach(), *(leaf.grad for leaf in leaves)]


def plain(h, weight, bias, targets):
    return F.cross_entropy(h @ weight.T + bias, targets, reduction="sum")


def in_double(*tensors):
    return [tensor.double() for tensor in tensors]


def check(computed, exact, relative):
    """Within a share of the largest number, for the loss and every gradient."""
    for name, here, there in zip(("loss", "h", "weight", "bias"), computed, exact, strict=True):
        assert here.isfinite().all()
        error = (here.double() - there).abs().max().item()
        assert error <= relative * there.abs().max().item(), f"{name}: {error}"


@pytest.fixture(params=[1, 3 * WORDS, 10**9], ids=["a row a chunk", "three rows a chunk", "one chunk"])
def _chunks(request, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_NUMBERS", request.param)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize(("dtype", "relative"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_loss_and_gradients_are_those_of_the_plain_computation_in_double(dtype, relative):
    h, weight, bias, targets = inputs(dtype=dtype)
    exact = with_gradients(plain, *in_double(h, weight, bias), targets)
    computed = with_gradients(linear_cross_entropy, h, weight, bias, targets)
    assert [each.dtype for each in computed] == [dtype] * 4
    check(computed, exact, relative)
    # Without gradient another path is taken.
    assert linear_cross_entropy(h, weight, bias, targets).item() == pytest.approx(exact[0].item(), rel=relative)
    each = token_losses(h, weight, bias, targets)
    assert each.shape == (TOKENS,)
    assert each.double().sum().item() == pytest.approx(exact[0].item(), rel=relative)


def test_gradcheck():
    h, weight, bias, targets = inputs(5, torch.float64)
    leaves = [tensor.requires_grad_() for tensor in (h, weight, bias)]
    assert torch.autograd.gradcheck(lambda *three: linear_cross_entropy(*three, targets), leaves)


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("upstream", [0.0, -2.5, 1 / 2100])
def test_an_upstream_gradient_scales_all_gradients(upstream):
    h, weight, bias, targets = inputs()
    exact = with_gradients(plain, *in_double(h, weight, bias), targets, upstream)
    check(with_gradients(linear_cross_entropy, h, weight, bias, targets, upstream), exact, 1e-6)


def test_the_loss_can_be_a_part_of_a_larger_one():
    """Twice in one graph, among other terms, and with an input that the plain computation shares."""
    h, weight, bias, targets = inputs()

    def twice(first):
        def loss(h, weight, bias, targets):
            return 0.5 * first(h, weight, bias, targets) + first(h.tanh(), weight, bias, targets.flip(0)) + h.sum()

        return loss

    exact = with_gradients(twice(plain), *in_double(h, weight, bias), targets)
    check(with_gradients(twice(linear_cross_entropy), h, weight, bias, targets), exact, 1e-6)


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
def test_each_gradient_alone(wanted):
    h, weight, bias, targets = inputs()
    exact = with_gradients(plain, h, weight, bias, targets)[1:]
    leaves = [tensor.requires_grad_(asked) for tensor, asked in zip((h, weight, bias), wanted, strict=True)]
    linear_cross_entropy(*leaves, targets).backward()
    for leaf, asked, there in zip(leaves, wanted, exact, strict=True):
        assert (leaf.grad is not None) == asked
        if asked:
            torch.testing.assert_close(leaf.grad, there)


@pytest.mark.usefixtures("_chunks")
def test_extreme_logits_give_finite_numbers():
    h, weight, bias, targets = inputs()
    exact = with_gradients(plain, *in_double(1e4 * h, weight, bias), targets)
    check(with_gradients(linear_cross_entropy, 1e4 * h, weight, bias, targets), exact, 1e-6)


@pytest.mark.usefixtures("_chunks")
def test_under_autocast_the_products_are_in_its_type_and_the_rest_in_float32():
    """Right to the precision of bfloat16; the loss itself is exact for the rounded inputs."""
    h, weight, bias, targets = inputs()
    rounded = with_gradients(plain, *in_double(h.bfloat16(), weight.bfloat16(), bias), targets)
    with torch.autocast("cpu", torch.bfloat16):
        computed = with_gradients(linear_cross_entropy, h, weight, bias, targets)
        each = token_losses(h, weight, bias, targets)
    assert {tensor.dtype for tensor in (*computed, each)} == {torch.float32}
    check(computed, rounded, 2e-2)
    assert each.sum().item() == pytest.approx(computed[0].item(), rel=1e-6)
    # Logits are rounded to bfloat16 once, nothing else is.
    logits = (h.bfloat16() @ weight.bfloat16().T).double() + bias
    assert computed[0].item() == pytest.approx(F.cross_entropy(logits, targets, reduction="sum").item(), rel=1e-6)


def test_weights_of_half_the_bits_give_their_gradients_in_that_type():
    h, weight, bias, targets = inputs(dtype=torch.bfloat16)
    exact = with_gradients(plain, *in_double(h, weight, bias), targets)
    computed = with_gradients(linear_cross_entropy, h, weight, bias, targets)
    assert [each.dtype for each in computed] == [torch.float32, *[torch.bfloat16] * 3]
    check(computed, exact, 2e-2)


@pytest.mark.usefixtures("_chunks")
def test_targets_to_leave_out_cost_nothing():
    h, weight, bias, targets = inputs()
    targets[::3] = -100
    each = token_losses(h, weight, bias, targets)
    exact = F.cross_entropy(h.double() @ weight.double().T + bias, targets, reduction="none")
    assert (each[::3] == 0).all()
    torch.testing.assert_close(each.double(), exact, rtol=1e-5, atol=1e-5)


def test_token_losses_keep_no_graph():
    h, weight, bias, targets = inputs()
    assert not token_losses(h.requires_grad_(), weight.requires_grad_(), bias, targets).requires_grad


def test_it_is_differentiable_once():
    h, weight, bias, targets = inputs()
    loss = linear_cross_entropy(h.requires_grad_(), weight, bias, targets)
    (first,) = torch.autograd.grad(loss.square(), h, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize(
    ("h", "weight", "targets"),
    [((5, 3, 2), (7, 2), (5, 3)), ((5, 3), (7, 4), (5,)), ((5, 3), (7, 3), (4,)), ((5, 3), (7, 3), (5, 1))],
)
def test_wrong_shapes_are_told_with_their_sizes(h, weight, targets):
    with pytest.raises(ValueError, match=r"h must be \(N, H\), weight \(V, H\) and targets \(N,\), got") as caught:
        linear_cross_entropy(torch.zeros(h), torch.zeros(weight), torch.zeros(7), torch.zeros(targets).long())
    for shape in (h, weight, targets):
        assert str(shape) in str(caught.value)


class LargestTensor(TorchDispatchMode):
    """The most numbers that any tensor had which an operation made."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [
            leaf.untyped_storage().nbytes() // leaf.element_size()
            for leaf in tree_leaves(result)
            if isinstance(leaf, Tensor)
        ]
        self.numbers = max([self.numbers, *made])
        return result


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("what", ["training", "no gradient", "token_losses"])
def test_no_more_than_a_chunk_of_logits_is_ever_there(monkeypatch, what, autocast):
    tokens, rows = 50 * HIDDEN, 16
    chunk = rows * WORDS
    # Counted in float32: of 16 bits a chunk holds twice as many.
    monkeypatch.setattr(module, "CHUNK_NUMBERS", (chunk + WORDS - 1) // (2 if autocast else 1))
    h, weight, bias, targets = inputs(tokens)
    # What must be there anyway: the inputs and their gradients.
    allowed = max(chunk, h.numel(), weight.numel())
    assert tokens * WORDS > 4 * allowed
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast), LargestTensor() as largest:
        if what == "training":
            with_gradients(linear_cross_entropy, h, weight, bias, targets)
        else:
            (token_losses if what == "token_losses" else linear_cross_entropy)(h, weight, bias, targets)
    assert chunk <= largest.numbers <= allowed


def test_the_measure_of_the_test_above_sees_the_plain_computation():
    h, weight, bias, targets = inputs()
    with LargestTensor() as largest:
        with_gradients(plain, h, weight, bias, targets)
    assert largest.numbers == TOKENS * WORDS


@pytest.mark.parametrize("smoothing", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_label_smoothing_is_that_of_pytorch(smoothing, requires_grad):
    torch.manual_seed(1)
    leaves = [torch.randn(*shape, dtype=torch.float64, requires_grad=requires_grad) for shape in ((9, 4), (7, 4), (7,))]
    targets = torch.randint(7, (9,))
    targets[[2, 5]] = -100
    h, weight, bias = leaves
    expected = torch.nn.functional.cross_entropy(
        h @ weight.T + bias, targets, reduction="sum", label_smoothing=smoothing
    )
    loss = linear_cross_entropy(h, weight, bias, targets, smoothing)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    if requires_grad:
        for ours, plain in zip(torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves), strict=True):
            torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)


def test_label_smoothing_under_autocast_is_close():
    torch.manual_seed(1)
    h, weight, bias, targets = torch.randn(64, 16), torch.randn(50, 16), torch.randn(50), torch.randint(50, (64,))
    expected = torch.nn.functional.cross_entropy(h @ weight.T + bias, targets, reduction="sum", label_smoothing=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        loss = linear_cross_entropy(h.bfloat16(), weight, bias, targets, 0.1)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=0.01)
