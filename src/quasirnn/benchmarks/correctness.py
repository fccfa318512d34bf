"""Does the layer compute correctly on this machine? Checked before anything is timed, and by `quasirnn doctor`."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from quasirnn.errors import Failure
from quasirnn.nn import QRNN
from quasirnn.ops import fo_pool, reference, torch_internals

# Pooling, width and zoneout: everything that the benchmarks time.
VARIANTS = [
    ("fo", 2, 0.0),
    ("fo", 2, 0.1),
    ("f", 1, 0.0),
    ("f", 3, 0.0),
    ("fo", 6, 0.0),
    ("ifo", 2, 0.0),
    ("ifo", 3, 0.1),
]

Product = Callable[[Tensor, Tensor], Tensor]

# Single steps that are checked: enough to fill the widest window.
STEPS = 8


class WrongNumbers(Failure):
    """What was to be timed gives wrong results."""


@dataclass(frozen=True)
class Check:
    """The error that comes nearest to the allowed one, or exceeds it most."""

    worst: str  # the result that has this error: h, c_last or a gradient
    error: float
    allowed: float

    @property
    def ok(self) -> bool:
        # Written so that a NaN fails.
        return self.error <= self.allowed


def require_correct(device: str = "cpu") -> dict[str, Any]:
    """The worst check of pooling and layers, as a dictionary.

    Raises:
        WrongNumbers: one of them fails.
    """
    checks = [check_pooling(device=device)]
    checks += [check_layer(pooling, k, zoneout, device=device) for pooling, k, zoneout in VARIANTS]
    checks.append(check_layer(dtype=torch.float64, device=device))
    # Large enough for the code paths that small sizes do not take.
    checks.append(check_layer(shape=(40, 9, 320, 320), device=device))
    return require(checks)


def require(checks: list[Check]) -> dict[str, Any]:
    """The worst of some checks, as a dictionary.

    Raises:
        WrongNumbers: one of them fails.
    """
    check = worst(checks)
    if not check.ok:
        raise WrongNumbers(
            f"wrong results on this machine, so nothing is timed: {check.worst} has an error of {check.error:.1e}, "
            f"more than the allowed {check.allowed:.1e}"
        )
    return asdict(check)


def check_pooling(shape: tuple[int, int, int] = (67, 5, 33), device: str = "cpu", seed: int = 1) -> Check:
    """Compare float32 fo-pooling, forward and backward, with the equations in float64.

    The allowed error is twice that of the same equations in plain PyTorch in float32, plus 4 eps of the largest value:
    the kernels may round differently, but not worse. A layer's products may be as far off as those of either library
    that torch uses (`plain_products`).
    """
    generator = torch.Generator().manual_seed(seed)
    T, B, H = shape
    z, f, o = torch.randn(3, T, B, H, generator=generator).unbind()
    inputs = [z.tanh(), f.sigmoid(), o.sigmoid(), torch.randn(B, H, generator=generator).tanh()]
    upstream = torch.randn(T, B, H, generator=generator)

    def results(pool: Callable[..., Any], dtype: torch.dtype, where: str) -> dict[str, Tensor]:
        leaves = [each.to(where, dtype).requires_grad_() for each in inputs]
        h, c_last = pool(*leaves)
        gradients = torch.autograd.grad((h * upstream.to(where, dtype)).sum() + c_last.sum(), leaves)
        values = [h, c_last, *gradients]
        names = ["h", "c_last", "gradient of z", "gradient of f", "gradient of o", "gradient of c0"]
        return named(names, values)

    exact = results(reference.fo_pool, torch.float64, "cpu")
    plain = results(reference.fo_pool, torch.float32, "cpu")
    return compare(results(fo_pool, torch.float32, device), exact, [plain], torch.float32)


def check_layer(
    pooling: str = "fo",
    k: int = 2,
    zoneout: float = 0.0,
    *,
    shape: tuple[int, int, int, int] = (37, 3, 20, 33),
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 1,
) -> Check:
    """Compare a QRNN layer with the equations in float64: training, inference, and inference step by step.

    The bound is that of `check_pooling`. In float64 the equations round as well, in another order: there the sums of
    k D terms and T steps are allowed 64 eps of the largest value.
    """
    T, B, D, H = shape
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(T, B, D, generator=generator)
    upstream = torch.randn(T, B, H, generator=generator)
    with torch.random.fork_rng(devices=[] if device == "cpu" else None):
        torch.manual_seed(seed)
        rnn = QRNN(D, H, kernel_size=k, pooling=pooling, zoneout=zoneout).to(device, dtype)
        weights = [parameter.detach().cpu() for parameter in rnn.parameters()]
        names = ["h", "gradient of x", "gradient of the weight", "gradient of the bias", "h in inference", "h by steps"]

        # The layer draws the seed of its mask as its first random number; the equations get the same one.
        torch.manual_seed(seed)
        mask_seed = torch.randint(2**63 - 1, (), device=device).cpu()
        torch.manual_seed(seed)
        leaf = x.to(device, dtype).requires_grad_()
        h = rnn(leaf)[0]
        gradients = torch.autograd.grad(h, [leaf, *rnn.parameters()], upstream.to(device, dtype))
        rnn.eval()
        with torch.no_grad():
            whole, state, steps = rnn(leaf.detach())[0], None, []
            for step in leaf.detach()[:STEPS].split(1):
                piece, state = rnn(step, state)
                steps.append(piece)
    mine = named(names, [h, *gradients, whole, torch.cat(steps)])

    def results(dtype: torch.dtype, convolve: Callable[..., Tensor]) -> dict[str, Tensor]:
        leaves = [each.to(dtype, copy=True).requires_grad_() for each in (x, *weights)]
        gates = convolve(leaves[0], leaves[1])
        h = reference.pool(gates, bias=leaves[2], pooling=pooling, zoneout=zoneout, seed=mask_seed)[0]
        gradients = torch.autograd.grad(h, leaves, upstream.to(dtype), retain_graph=True)
        # Without a seed: the expectation, which eval takes.
        still = reference.pool(gates, bias=leaves[2], pooling=pooling, zoneout=zoneout)[0]
        return named(names, [h, *gradients, still, still[:STEPS]])

    exact = results(torch.float64, reference.convolve)
    plain = [results(dtype, partial(one_product, multiply)) for multiply in plain_products(dtype)]
    check = compare(mine, exact, plain, dtype, eps=64 if dtype == torch.float64 else 4)
    detail = f"{pooling}, width {k}" + (f", zoneout {zoneout}" if zoneout else "")
    return Check(f"{check.worst} ({detail}, {str(dtype).removeprefix('torch.')})", check.error, check.allowed)


class OneDnnProduct(torch.autograd.Function):
    """x w^T and the gradient of x by oneDNN; the gradient of w, whose left side is transposed, by BLAS."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return _onednn(x, w)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        grad = grads[0].contiguous()
        return _onednn(grad, w.T.contiguous()), grad.T @ x


def _onednn(x: Tensor, w: Tensor) -> Tensor:
    assert torch_internals.onednn_linear is not None
    return torch_internals.onednn_linear(x, w)


def plain_products(dtype: torch.dtype) -> list[Product]:
    """x w^T by every library that torch itself uses for this type: BLAS and, in float32, oneDNN, as in nn.LSTM."""
    with_onednn = dtype == torch.float32 and torch_internals.onednn_linear is not None
    return [lambda x, w: x @ w.T, *([OneDnnProduct.apply] if with_onednn else [])]


def one_product(multiply: Product, x: Tensor, weight: Tensor) -> Tensor:
    """`reference.convolve` with one product over the whole window, as the layer has it, not one for each tap."""
    windows = torch.cat(reference.taps(x, weight.shape[1], None, 0, None, None), dim=-1)
    return multiply(windows.flatten(0, 1), weight.flatten(1)).view(*x.shape[:2], -1)


def named(names: list[str], values: Sequence[Tensor]) -> dict[str, Tensor]:
    """Results by name, ready to be compared."""
    return {name: value.detach().cpu().double() for name, value in zip(names, values, strict=True)}


def compare(
    mine: dict[str, Tensor], exact: dict[str, Tensor], plain: list[dict[str, Tensor]], dtype: torch.dtype, eps: int = 4
) -> Check:
    """The worst of all results: twice the largest error of `plain` is allowed, plus some eps of the largest value."""
    checks = []
    for name, truth in exact.items():
        floor = eps * torch.finfo(dtype).eps * truth.abs().max()
        allowed = 2 * max((each[name] - truth).abs().max() for each in plain) + floor
        checks.append(Check(name, float((mine[name] - truth).abs().max()), float(allowed)))
    return worst(checks)


def worst(checks: list[Check]) -> Check:
    return max(checks, key=lambda check: check.error / check.allowed if check.ok else float("inf"))
