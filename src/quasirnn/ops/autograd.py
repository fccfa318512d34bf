"""Derivatives of the operators, and the functions through which everything calls them.

Autograd is registered with the operators, so that compiled and exported programs have it. An eager call uses an
autograd function outside the dispatcher instead, which costs a third as much. For more than one backward (double
backward, forward mode, `torch.func`, `vmap`) the same function is composed of ordinary tensor operations around the
recurrence, whose derivatives are recurrences again.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from quasirnn.ops import backends, plain, reference, torch_internals
from quasirnn.ops.operators import SCHEMAS, library
from quasirnn.ops.sequences import padding_of, without

Maybe = Tensor | None


# The composition.


class _Recurrence(torch.autograd.Function):
    """h[t] = a[t] h[t-1] + b[t] in float32 or float64, by the operator; its derivatives are calls of itself."""

    @staticmethod
    def forward(
        a: Tensor, b: Tensor, h0: Tensor, lengths: Maybe, starts: Maybe, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        a, b, h0 = a.contiguous(), b.contiguous(), h0.contiguous()
        with torch_internals.below_autograd():
            output: tuple[Tensor, Tensor] = torch.ops.quasirnn.recurrence.default(a, b, h0, lengths, starts, reverse)
        return output

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        a, _, h0, lengths, starts, ctx.reverse = inputs
        ctx.save_for_backward(a, h0, lengths, starts, output[0])
        ctx.save_for_forward(a, h0, lengths, starts, output[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Maybe, ...]:
        a, h0, lengths, starts, h = ctx.saved_tensors
        grad_h, grad_last = grads
        D, grad_h0 = plain.adjoint(_recur, a, grad_h, grad_last, ctx.reverse, lengths, starts)
        return D * plain.step_before(h, h0, ctx.reverse, lengths, starts), D, grad_h0, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent_a: Maybe, tangent_b: Maybe, tangent_h0: Maybe, *_: None) -> tuple[Tensor, Tensor]:
        a, h0, lengths, starts, h = ctx.saved_tensors
        entering = torch.zeros_like(h) if tangent_b is None else tangent_b
        if tangent_a is not None:
            entering = entering + tangent_a * plain.step_before(h, h0, ctx.reverse, lengths, starts)
        first = torch.zeros_like(h0) if tangent_h0 is None else tangent_h0
        return _recur(a, entering, first, reverse=ctx.reverse, lengths=lengths, starts=starts)

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        a: Tensor,
        b: Tensor,
        h0: Tensor,
        lengths: Maybe,
        starts: Maybe,
        reverse: bool,
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        """The batch dimension becomes rows."""
        N = info.batch_size

        def as_rows(x: Tensor, dim: int | None, rows: int) -> Tensor:
            x = x.unsqueeze(rows).expand(*x.shape[:rows], N, *x.shape[rows:]) if dim is None else x.movedim(dim, rows)
            return x.flatten(rows, rows + 1)

        a, b, h0 = (as_rows(x, dim, rows) for x, dim, rows in zip((a, b, h0), in_dims, (1, 1, 0), strict=False))
        lengths = None if lengths is None else as_rows(lengths, in_dims[3], 0).contiguous()
        starts = None if starts is None else as_rows(starts, in_dims[4], 1).contiguous()
        h, last = _recur(a, b, h0, reverse=reverse, lengths=lengths, starts=starts)
        return (h.unflatten(1, (N, -1)), last.unflatten(0, (N, -1))), (1, 0)


def _recur(a: Tensor, b: Tensor, h0: Tensor, *, reverse: bool, lengths: Maybe, starts: Maybe) -> tuple[Tensor, Tensor]:
    recurrence: Any = _Recurrence.apply
    h, last = recurrence(a, b, h0, lengths, starts, reverse)
    return h, last


def _composed_recurrence(
    a: Tensor, b: Tensor, h0: Maybe, lengths: Maybe, starts: Maybe, reverse: bool
) -> tuple[Tensor, Tensor]:
    padding = padding_of(a, lengths)
    wide_a, wide_b = (without(plain.wide(x), padding) for x in (a, b))
    # Under vmap the state needs the batch dimensions of both, so zeros_like(a[0]) would not do.
    first = torch.zeros_like(wide_a[0] * wide_b[0]) if h0 is None else h0
    h, last = _recur(wide_a, wide_b, first, reverse=reverse, lengths=lengths, starts=starts)
    return h.to(a.dtype), last


def _composed_pool(
    gates: Tensor,
    bias: Maybe,
    c0: Maybe,
    lengths: Maybe,
    starts: Maybe,
    seed: Maybe,
    zoneout: float,
    num_gates: int,
    reverse: bool,
    _keep: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    padding = padding_of(gates, lengths)
    activated, (z, f, *others) = plain.activate(gates, bias, padding, seed, zoneout, num_gates)
    c, last = _composed_recurrence(f, others[1] * z if num_gates == 4 else (1 - f) * z, c0, lengths, starts, reverse)
    h = c if num_gates == 2 else others[0] * c
    kept = without(torch.cat(activated, dim=-1), padding)
    return h.to(gates.dtype), last, c.to(gates.dtype), kept.to(gates.dtype)


def _composed_layer(
    x: Tensor,
    weight: Tensor,
    bias: Maybe,
    context: Maybe,
    c0: Maybe,
    lengths: Maybe,
    starts: Maybe,
    seed: Maybe,
    zoneout: float,
    num_gates: int,
    look_ahead: int,
    reverse: bool,
    _keep: bool = True,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gates = reference.convolve(
        plain.wide(x),
        plain.wide(weight),
        None if context is None else plain.wide(context),
        look_ahead=look_ahead,
        reverse=reverse,
        lengths=lengths,
        starts=starts,
    ).to(x.dtype)
    return _composed_pool(gates, bias, c0, lengths, starts, seed, zoneout, num_gates, reverse)


def _replay(composed: Callable[..., Sequence[Tensor]], inputs: Sequence[Any], grads: Sequence[Maybe]) -> list[Maybe]:
    """The gradient through the composition, where the gradient must be differentiable or is batched itself.

    The aliases separate inputs of which one was computed from another.
    """
    needed = [isinstance(x, Tensor) and x.requires_grad for x in inputs]
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        aliases = [x.view_as(x) if need else x for x, need in zip(inputs, needed, strict=True)]
        outputs = composed(*aliases)
    pairs = [pair for pair in zip(outputs, grads, strict=True) if pair[1] is not None and pair[0].requires_grad]
    wanted = [x for x, need in zip(aliases, needed, strict=True) if need]
    if not pairs or not wanted:
        return [None] * len(inputs)
    results = iter(
        torch.autograd.grad(
            [out for out, _ in pairs],
            wanted,
            [None if grad is None else grad.to(out.dtype) for out, grad in pairs],
            create_graph=create_graph,
            allow_unused=True,
        )
    )
    return [next(results) if need else None for need in needed]


def _replaying() -> bool:
    """Inside a backward, gradients are recorded only for a double backward."""
    return not torch.compiler.is_compiling() and (torch.is_grad_enabled() or torch_internals.transforming())


# One backward, by the kernels. `setup` and `backward` have the signatures of torch.library and of autograd functions.


def _contiguous(grad: Maybe) -> Maybe:
    # `out.sum().backward()` sends a gradient with stride 0.
    return None if grad is None else grad.contiguous()


def _kept(activated: Tensor) -> Tensor:
    """The gates that the forward kept. A graph exported without gradients kept none."""
    if activated.dim() != 3:
        raise RuntimeError(
            "quasirnn: this program was traced without gradients, so nothing was saved for the backward. Export or "
            "compile it with gradients enabled."
        )
    return activated


def _rows(bias: Maybe) -> int:
    """Rows of the bias' gradient: none, one for all, or one for each batch row."""
    return 0 if bias is None else 1 if bias.dim() == 1 else bias.shape[0]


def _expected(zoneout: float, seed: Maybe) -> float:
    """The zoneout that acts as its expectation. The kept gates are before it, but after a random zoneout."""
    return zoneout if seed is None else 0.0


def _save(ctx: Any, tensors: Sequence[Maybe], *settings: Any) -> None:
    ctx.save_for_backward(*tensors)
    ctx.set_materialize_grads(False)
    ctx.settings = settings


def _recurrence_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    a, b, h0, lengths, starts, reverse = inputs
    _save(ctx, (a, b, h0, lengths, starts, output[0]), reverse)


def _recurrence_backward(ctx: Any, *grads: Maybe) -> tuple[Maybe, ...]:
    a, b, h0, lengths, starts, h = ctx.saved_tensors
    (reverse,) = ctx.settings
    if _replaying():
        return tuple(_replay(_composed_recurrence, (a, b, h0, lengths, starts, reverse), grads))
    grad_a, grad_b, grad_h0 = torch.ops.quasirnn.recurrence_backward.default(
        *map(_contiguous, grads), a, h, h0, lengths, starts, reverse
    )
    return grad_a, grad_b, None if h0 is None else grad_h0, None, None, None


def _pooling_setup(count: int) -> Callable[..., None]:
    """For an operator whose inputs are `count` tensors, zoneout, num_gates, other settings, and keep."""

    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        settings = inputs[count:-1]
        h, _, c, activated = output
        num_gates = settings[1]
        # Some inputs are needed by a double backward only; saving an input costs no copy.
        _save(ctx, (*inputs[:count], h if num_gates == 2 else c, activated), *settings)

    return setup


def _pool_backward(ctx: Any, grad_h: Maybe, grad_c_last: Maybe, grad_c: Maybe, grad_kept: Maybe) -> tuple[Maybe, ...]:
    *tensors, c, activated = ctx.saved_tensors
    _, bias, c0, lengths, starts, seed = tensors
    zoneout, num_gates, reverse = ctx.settings
    grads = (grad_h, grad_c_last, None if num_gates == 2 else grad_c, grad_kept)
    if _replaying():
        return (*_replay(_composed_pool, (*tensors, *ctx.settings), grads), None)
    kept = (_kept(activated), c, c0, lengths, starts, _expected(zoneout, seed))
    grad_gates, grad_bias, grad_c0 = torch.ops.quasirnn.pool_backward.default(
        *map(_contiguous, grads), *kept, num_gates, reverse, _rows(bias)
    )
    return grad_gates, None if bias is None else grad_bias.view_as(bias), None if c0 is None else grad_c0, *[None] * 7


def _layer_backward(ctx: Any, grad_h: Maybe, grad_c_last: Maybe, grad_c: Maybe, grad_kept: Maybe) -> tuple[Maybe, ...]:
    *tensors, c, activated = ctx.saved_tensors
    x, weight, bias, context, c0, lengths, starts, seed = tensors
    zoneout, num_gates, look_ahead, reverse = ctx.settings
    grads = (grad_h, grad_c_last, None if num_gates == 2 else grad_c, grad_kept)
    if _replaying():
        return (*_replay(_composed_layer, (*tensors, *ctx.settings), grads), None)
    kept = (_kept(activated), c, c0, lengths, starts, _expected(zoneout, seed))
    need_x = ctx.needs_input_grad[0]
    grad_x, grad_weight, grad_bias, grad_context, grad_c0 = torch.ops.quasirnn.layer_backward.default(
        *map(_contiguous, grads), x, weight, context, *kept, num_gates, look_ahead, reverse, _rows(bias), need_x
    )
    return (
        grad_x if need_x else None,
        grad_weight,
        None if bias is None else grad_bias.view_as(bias),
        None if context is None else grad_context,
        None if c0 is None else grad_c0,
        *[None] * 8,
    )


def _differentiable(
    name: str,
    setup: Callable[..., None],
    backward: Callable[..., tuple[Maybe, ...]],
    composed: Callable[..., tuple[Tensor, ...]],
) -> Callable[..., tuple[Tensor, ...]]:
    """A function that calls the operator by the cheapest route on which its derivatives are correct."""
    torch.library.register_autograd(f"quasirnn::{name}", backward, setup_context=setup, lib=library)
    operator: Callable[..., tuple[Tensor, ...]] = getattr(torch.ops.quasirnn, name).default
    has_keep = "bool keep" in SCHEMAS[name]

    def forward(*inputs: Any) -> tuple[Tensor, ...]:
        with torch_internals.below_autograd():
            return operator(*inputs)

    def forward_and_setup(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        output = forward(*inputs)
        setup(ctx, inputs, output)
        return output

    methods = {"forward": staticmethod(forward_and_setup), "backward": staticmethod(backward)}
    function: Any = type(f"quasirnn_{name}", (torch.autograd.Function,), methods)

    def call(*inputs: Any) -> tuple[Tensor, ...]:
        if inputs[0].device.type not in backends.asked:
            backends.warn_if_plain(inputs[0].device)
        needs_grad = torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in inputs)
        # torch.jit.trace runs the program a second time without gradients, and both must be the same.
        tracing = not torch.compiler.is_compiling() and torch_internals.is_tracing()
        if has_keep and (needs_grad or tracing):
            inputs = (*inputs[:-1], True)
        # A traced program contains the operator, which has its derivative registered, and no Python function.
        if tracing or torch.compiler.is_compiling():
            return operator(*inputs)
        if torch_internals.transforming():
            return composed(*inputs)
        run: Callable[..., tuple[Tensor, ...]] = function.apply if needs_grad else forward
        return run(*inputs)

    return call


recurrence = _differentiable("recurrence", _recurrence_setup, _recurrence_backward, _composed_recurrence)
pool = _differentiable("pool", _pooling_setup(6), _pool_backward, _composed_pool)
layer = _differentiable("layer", _pooling_setup(8), _layer_backward, _composed_layer)


def dropout(x: Tensor, probability: float, training: bool = True) -> Tensor:
    """As `torch.nn.functional.dropout`, with a mask that is a function of a seed from torch's generator.

    torch's own draws its numbers one by one, ten times as slow on a CPU. It is still used where there is no kernel (on
    other devices, in compiled programs, under `torch.func`), and without autocast, so that runs in float32 resume to
    the bits of earlier versions.
    """
    if not training or probability == 0.0:
        return x
    has_kernel = (
        backends.kernels is not None
        and x.is_cpu
        and 2**-32 < probability < 1.0
        and torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not torch_internals.transforming()
    )
    if not has_kernel:
        return functional.dropout(x, probability)
    seed = torch.randint(2**63 - 1, ())
    if torch.is_grad_enabled() and x.requires_grad:
        with_gradient: Tensor = _dropout(x, seed, probability)
        return with_gradient
    dropped: Tensor = torch.ops.quasirnn.dropout(x.contiguous(), seed, probability)
    return dropped


class _Dropout(torch.autograd.Function):
    """The backward applies the same operator to the gradient, so no mask is kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seed: Tensor, probability: float) -> Tensor:
        ctx.seed, ctx.probability = seed, probability
        with torch_internals.below_autograd():
            dropped: Tensor = torch.ops.quasirnn.dropout(x.contiguous(), seed, probability)
        return dropped

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        # Dropout is linear in its input, so it is its own derivative, of any order.
        return _dropout(grads[0], ctx.seed, ctx.probability), None, None


_dropout: Any = _Dropout.apply
