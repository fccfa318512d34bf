"""torch.func, forward mode and vmap, and what is composed of them, against the reference's float64 loops."""

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from quasirnn import ops
from quasirnn.ops import reference

T, B, H, D, k = 4, 2, 3, 2, 2
# torch compiles its own forward-mode formulas with what it calls deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning"),
]
POOLINGS = ("f", "fo", "ifo")
LENGTHS = torch.tensor([4, 2])


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def layer_pair(pooling: str, reverse: bool, lengths: Tensor | None, zoneout: float, seed: Tensor | None):
    """One function of x and the weights, through the operators and through the loops."""
    width = (len(pooling) + 1) * H
    inputs = (draw(T, B, D), draw(width, k, D), draw(width), draw(B, H))
    shared = {"pooling": pooling, "zoneout": zoneout, "seed": seed, "reverse": reverse, "lengths": lengths}

    def ours(x, weight, bias, c0):
        out = ops.qrnn_layer(x, weight, bias, c0, **shared)
        return torch.cat([out.h, out.state.c[None]])

    def loops(x, weight, bias, c0):
        pre = reference.convolve(x, weight, reverse=reverse, lengths=lengths)
        if lengths is not None:
            pre = pre.masked_fill((torch.arange(T)[:, None] >= lengths)[:, :, None], 0)
        h, last = reference.pool(pre, c0, bias=bias, **shared)
        return torch.cat([h, last[None]])

    return ours, loops, inputs


def pool_pair(pooling: str, reverse: bool, lengths: Tensor | None):
    inputs = (draw(T, B, H), *(draw(T, B, H).sigmoid() for _ in pooling), draw(B, H))
    options = {"reverse": reverse, "lengths": lengths}

    def through(module):
        def run(*tensors):
            h, last = getattr(module, f"{pooling}_pool")(*tensors, **options)
            return torch.cat([h, last[None]])

        return run

    return through(ops), through(reference), inputs


def recurrence_pair(reverse: bool, lengths: Tensor | None):
    def through(module):
        def run(a, b, h0):
            h, last = module.linear_recurrence(a, b, h0, reverse=reverse, lengths=lengths)
            return torch.cat([h, last[None]])

        return run

    return through(ops), through(reference), (draw(T, B, H), draw(T, B, H), draw(B, H))


PAIRS = {
    f"{name} {'backwards' if reverse else 'forwards'} {'padded' if lengths is not None else ''}": make
    for reverse in (False, True)
    for lengths in (None, LENGTHS)
    for name, make in {
        **{f"layer {p}": (lambda p=p, r=reverse, n=lengths: layer_pair(p, r, n, 0.0, None)) for p in POOLINGS},
        **{f"{p}_pool": (lambda p=p, r=reverse, n=lengths: pool_pair(p, r, n)) for p in POOLINGS},
        "layer with expected zoneout": lambda r=reverse, n=lengths: layer_pair("ifo", r, n, 0.3, None),
        "layer with random zoneout": lambda r=reverse, n=lengths: layer_pair("ifo", r, n, 0.3, torch.tensor(5)),
        "linear_recurrence": lambda r=reverse, n=lengths: recurrence_pair(r, n),
    }.items()
}
# By default every function in one of the four ways, by turns.
QUICK = {name for number, name in enumerate(PAIRS) if number % 9 % 4 == number // 9}
pairs = pytest.mark.parametrize(
    "make",
    [pytest.param(make, marks=() if name in QUICK else pytest.mark.full) for name, make in PAIRS.items()],
    ids=PAIRS,
)


def test_every_function_and_every_way_is_there():
    assert len(QUICK) == len({name.replace("backwards", "forwards").partition(" forwards")[0] for name in PAIRS}) == 9
    assert len({("backwards" in name, "padded" in name) for name in QUICK}) == 4


def assert_same(ours, truth) -> None:
    torch.testing.assert_close(ours, truth, rtol=0, atol=1e-11)
    leaves = torch.utils._pytree.tree_leaves(truth)
    assert all(leaf.abs().sum() > 0 for leaf in leaves), "a derivative that is zero proves nothing"


def everything(function) -> tuple[int, ...]:
    return tuple(range(len(function)))


def scalar(function):
    return lambda *inputs: function(*inputs).sin().sum()


@pairs
def test_guarantee_right_gradients_of_every_transform(make):
    torch.manual_seed(0)
    ours, loops, inputs = make()
    which = everything(inputs)
    tangents = tuple(map(torch.randn_like, inputs))
    cotangent = torch.randn_like(loops(*inputs))
    for transform in (
        lambda f: torch.func.grad(scalar(f), which)(*inputs),
        lambda f: torch.func.vjp(f, *inputs)[1](cotangent),
        lambda f: torch.func.jvp(f, inputs, tangents)[1],
        lambda f: torch.func.jacrev(f, which)(*inputs),
        lambda f: torch.func.jacfwd(f, which)(*inputs),
        lambda f: torch.func.linearize(f, *inputs)[1](*tangents),
    ):
        assert_same(transform(ours), transform(loops))


@pairs
def test_guarantee_right_gradients_of_composed_transforms(make):
    torch.manual_seed(0)
    ours, loops, inputs = make()
    many = tuple(torch.randn(3, *x.shape, dtype=x.dtype) for x in inputs)
    tangents = tuple(map(torch.randn_like, inputs))
    for transform in (
        lambda f: torch.func.hessian(scalar(f))(*inputs),
        lambda f: torch.func.jacrev(torch.func.jacrev(scalar(f)))(*inputs),
        lambda f: torch.func.jacrev(torch.func.jacfwd(scalar(f)))(*inputs),
        lambda f: torch.func.jvp(torch.func.grad(scalar(f)), inputs, tangents)[1],
        lambda f: torch.vmap(f)(*many),
        lambda f: torch.vmap(f, in_dims=(0, *[None] * (len(inputs) - 1)))(many[0], *inputs[1:]),
        lambda f: torch.vmap(torch.func.grad(scalar(f)))(*many),
        lambda f: torch.vmap(torch.vmap(f))(*(torch.stack([x, 2 * x]) for x in many)),
    ):
        assert_same(transform(ours), transform(loops))


@pairs
def test_forward_mode_and_batched_gradients(make):
    torch.manual_seed(0)
    ours, loops, inputs = make()
    tangents = tuple(map(torch.randn_like, inputs))
    found = []
    for function in (ours, loops):
        for no_grad in (False, True):
            with forward_ad.dual_level(), torch.set_grad_enabled(not no_grad):
                duals = [forward_ad.make_dual(x, tangent) for x, tangent in zip(inputs, tangents, strict=True)]
                found.append(forward_ad.unpack_dual(function(*duals)).tangent)
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = function(*leaves)
        cotangents = torch.randn(5, *out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
        found.append(torch.autograd.grad(out, leaves, cotangents, is_grads_batched=True))
    for mine, truth in zip(found[:3], found[3:], strict=True):
        assert_same(mine, truth)


@pytest.mark.parametrize("pooling", [*(pytest.param(p, marks=pytest.mark.full) for p in POOLINGS[:-1]), POOLINGS[-1]])
def test_second_derivatives_by_gradgradcheck_through_kernels(pooling):
    ours, _, inputs = layer_pair(pooling, False, LENGTHS, 0.2, None)
    leaves = [x.requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(ours, leaves, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(ours, leaves)
