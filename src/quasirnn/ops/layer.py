"""One QRNN layer as a function: convolution over time, then pooling, in one operator.

Poolings of your own (docs/adding-a-pooling.md) run as ordinary tensor operations around the recurrence: on every device
and under every transformation, with lengths, starts, states, zoneout and both directions. Only the fused pass over the
gates is missing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quasirnn.ops import autograd, checks, plain, reference, torch_internals
from quasirnn.ops.operators import state_type
from quasirnn.ops.pooling import checked_bias, zoneout_seed
from quasirnn.ops.sequences import Lengths, Rows, last_starts, padding_of, without

# See `register_pooling`.
Pool = Callable[..., tuple[Tensor, Tensor, Tensor]]

_registered: dict[str, Pool] = {}


class LayerState(NamedTuple):
    """The state of a layer between two pieces of a sequence."""

    c: Tensor  # cells, (B, H)
    context: Tensor | None  # the last k - 1 inputs, (B, k - 1, D); None where none applies


class LayerGates(NamedTuple):
    """Gates after non-linearity and zoneout, and cells, each (T, B, H); o and i if the pooling has them."""

    z: Tensor
    f: Tensor
    o: Tensor | None
    i: Tensor | None
    c: Tensor  # cells, before the output gate


class LayerOutput(NamedTuple):
    """What a layer returns."""

    h: Tensor  # (T, B, H)
    state: LayerState
    gates: LayerGates | None  # on request


def qrnn_layer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    c0: Tensor | None = None,
    *,
    context: Tensor | None = None,
    pooling: str = "fo",
    look_ahead: int = 0,
    zoneout: float = 0.0,
    seed: Tensor | None = None,
    reverse: bool = False,
    lengths: Lengths = None,
    starts: Tensor | None = None,
    return_gates: bool = False,
) -> LayerOutput:
    """Masked convolution and pooling in one operator (paper, eq. 1-6).

        pre[t] = bias + sum over j = 0 .. k-1 of weight[:, j] x[t + j - (k - 1 - look_ahead)]

    Rows of `weight` are the gates z, f, o, i; its columns are the inputs, oldest first. x is zero outside a row's own
    length, except for `context`, the k - 1 inputs before the first step.

    Args:
        x: (T, B, D).
        weight: (gates * H, k, D).
        bias: (gates * H), or one per batch row, (B, gates * H): the paper's eq. 7 adds its V h there.
        c0: initial cells, (B, H).
        context: (B, k - 1, D); only for a causal layer that reads forwards.
        look_ahead: how many steps ahead of t the window reaches: 0 is the masked, causal convolution.
        starts: boolean, (T, B), True where a new sequence starts inside a row: cells and window are cut there.
        zoneout, seed: as in `fused_pool`: a random mask with a seed, its expectation without.
        return_gates: also return all cells and the activated gates, differentiable.
    Returns:
        (h, state, gates): h is (T, B, H), zero past a row's length; the state continues each row at its own end.
    """
    who = "qrnn_layer"
    num_gates = len(checks.pooling(who, pooling)) + 1
    x = checks.sequence(who, "x", x, "(T, B, D)")
    weight = checks.is_float(who, "weight", weight)
    _, B, D = x.shape
    if weight.dim() != 3 or weight.shape[0] % num_gates or weight.shape[2] != D or 0 in weight.shape:
        raise ValueError(
            f'{who}: with pooling "{pooling}" and D = {D} inputs, weight must have shape ({num_gates} * H, k, {D}), '
            f"got {tuple(weight.shape)}."
        )
    width, k, _ = weight.shape
    if not 0 <= checks.integer(who, "look_ahead", look_ahead) < k:
        raise ValueError(f"{who}: look_ahead must be in 0 .. k - 1 = {k - 1}, got {look_ahead}.")
    if context is not None:
        if reverse or look_ahead:
            raise ValueError(f"{who}: only a causal layer in the forward direction has a context.")
        context = checks.shaped(who, "context", context, "(B, k - 1, D)", (B, k - 1, D), x)
    if autocast_type(x) is None:
        checks.same_type_and_device(who, "weight", weight, "x", x)
    else:
        checks.same_device(who, "weight", weight, "x", x)
        bias = None if bias is None else checks.is_float(who, "bias", bias).to(x.dtype)
    return run_layer(
        x,
        weight,
        checked_bias(who, bias, B, width, x),
        checks.initial_state(who, "c0", c0, B, width // num_gates, x),
        context=context,
        rows=Rows.checked(who, x, lengths, starts),
        seed=zoneout_seed(who, zoneout, seed, x),
        options=LayerOptions(
            pooling=pooling,
            context_size=0 if reverse or look_ahead else k - 1,
            look_ahead=look_ahead,
            zoneout=checks.probability(who, "zoneout", zoneout),
            reverse=bool(reverse),
            return_gates=return_gates,
        ),
    )


class LayerOptions(NamedTuple):
    """The settings of a layer that are not tensors."""

    pooling: str
    context_size: int  # earlier inputs that the state carries
    look_ahead: int
    zoneout: float
    reverse: bool
    return_gates: bool

    @property
    def num_gates(self) -> int:
        return len(checks.POOLINGS[self.pooling])


def run_layer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    c0: Tensor | None,
    *,
    context: Tensor | None,
    rows: Rows,
    seed: Tensor | None,
    options: LayerOptions,
) -> LayerOutput:
    """`qrnn_layer`, or the layer of a registered pooling, on arguments that have been checked."""
    if options.pooling in _registered:
        return _run_registered(x, weight, bias, c0, context, rows, seed, options)
    dtype = autocast_type(x) or x.dtype
    outputs = autograd.layer(
        x.to(dtype).contiguous(),
        weight.to(dtype).contiguous(),
        None if bias is None else bias.to(dtype).contiguous(),
        None if context is None else context.to(dtype).contiguous(),
        None if c0 is None else c0.to(state_type(dtype)).contiguous(),
        rows.lengths,
        rows.starts,
        seed,
        options.zoneout,
        options.num_gates,
        options.look_ahead,
        options.reverse,
        options.return_gates or rows.packed is not None,
    )
    return layer_output(outputs, x, context, rows, seed, options)


def layer_output(
    outputs: tuple[Tensor, ...],
    x: Tensor,
    context: Tensor | None,
    rows: Rows,
    seed: Tensor | None,
    options: LayerOptions,
) -> LayerOutput:
    """What a layer returns, from the outputs of its operator."""
    h, c_last, c, kept = outputs
    num_gates = options.num_gates
    c = h if num_gates == 2 else c
    state = _state(c_last, c, x, context, rows, options)
    if not options.return_gates:
        return LayerOutput(h, state, None)
    gates = list(kept.chunk(num_gates, dim=-1))
    if options.zoneout > 0 and seed is None:
        # The operator keeps the gates before the expectation.
        padding = padding_of(kept, rows.lengths)
        gates = [without(gate, padding) for gate in reference.expected_zoneout(gates, options.zoneout)]
    return LayerOutput(h, state, _named(gates, c))


def _named(gates: list[Tensor], c: Tensor) -> LayerGates:
    z, f, *others = gates
    o, i = (*others, None, None)[:2]
    return LayerGates(z, f, o, i, c)


def _state(
    c_last: Tensor, c: Tensor, x: Tensor, context: Tensor | None, rows: Rows, options: LayerOptions
) -> LayerState:
    """The state of every row, or of every packed sequence."""
    if rows.packed is None:
        return LayerState(c_last, last_inputs(x, context, options.context_size, rows.lengths, rows.starts))
    cells = c[rows.packed.ends(options.reverse), 0].to(c_last.dtype)
    return LayerState(cells, rows.packed.last_inputs(x, options.context_size))


def last_inputs(
    x: Tensor, context: Tensor | None, n: int, lengths: Tensor | None, starts: Tensor | None = None
) -> Tensor | None:
    """The last n inputs of each row, (B, n, D): the left context with which the convolution continues it.

    Where the row is shorter than that they reach back into its own context. Zero before the row's last start.
    """
    if n == 0:
        return None
    T, B, D = x.shape
    if lengths is None and (starts is not None or torch.compiler.is_compiling() or torch_internals.is_tracing()):
        # A choice by T becomes a condition on it: an exported layer could then take no piece shorter than n.
        lengths = torch.zeros(B, dtype=torch.int64, device=x.device) + T
    if lengths is None and n <= T:
        return x[T - n :].transpose(0, 1)
    if context is None:
        context = x.new_zeros(B, n, D)
    if lengths is None:
        return torch.cat([context[:, T:].to(x.dtype), x.transpose(0, 1)], dim=1)
    position = lengths[:, None] + torch.arange(n, device=x.device) - n  # (B, n)
    row = torch.arange(B, device=x.device)[:, None]
    from_x = x[position.clamp(min=0), row]
    from_context = context[row, (position + n).clamp(max=n - 1)].to(x.dtype)
    inputs = torch.where((position >= 0)[:, :, None], from_x, from_context)
    if starts is None:
        return inputs
    return without(inputs, (position < last_starts(starts, lengths)[:, None])[:, :, None])


def autocast_type(x: Tensor) -> torch.dtype | None:
    """The type to which autocast casts the operator's inputs, as for a matrix product; None without. Not the state."""
    device = x.device.type
    if device == "meta" or x.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def register_pooling(name: str, gates: str, pool: Pool) -> None:
    """Make `pooling=name` known to `QRNN` and `QRNNLayer`.

    Args:
        gates: the letters of its gates in the order of the weight's rows: "zf", "zfo" or "zfoi". z is a tanh, the
            others are sigmoids; zoneout acts on f, and on i.
        pool: pool(recur, z, f, ...) -> (h, c, last), from the activated gates, (T, B, H) each in float32 or float64.
            recur(a, b) gives every c[t] = a[t] * c[t-1] + b[t], (T, B, H), and the last one of each row, (B, H). h and
            c are (T, B, H), last is (B, H).
    """
    if gates not in checks.POOLINGS.values():
        raise ValueError(f'register_pooling: gates must be "zf", "zfo" or "zfoi", got {gates!r}.')
    if name in checks.FUSED:
        raise ValueError(f'register_pooling: the pooling "{name}" already exists.')
    checks.POOLINGS[name] = gates
    _registered[name] = pool


def _run_registered(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    c0: Tensor | None,
    context: Tensor | None,
    rows: Rows,
    seed: Tensor | None,
    options: LayerOptions,
) -> LayerOutput:
    dtype = autocast_type(x) or x.dtype
    order: dict[str, Any] = {"reverse": options.reverse, "lengths": rows.lengths, "starts": rows.starts}
    before = None if context is None else context.to(dtype)
    gates = reference.convolve(x.to(dtype), weight.to(dtype), before, look_ahead=options.look_ahead, **order)
    padding = padding_of(gates, rows.lengths)
    _, activated = plain.activate(gates, bias, padding, seed, options.zoneout, options.num_gates)
    first = None if c0 is None else c0.to(state_type(dtype)).contiguous()

    def recur(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        a, b = (without(part, padding).contiguous() for part in (a, b))
        c, last = autograd.recurrence(a, b, first, rows.lengths, rows.starts, options.reverse)
        return c, last

    h, c, last = _registered[options.pooling](recur, *activated)
    h, c = (without(part, padding).to(dtype) for part in (h, c))
    state = _state(last, c, x, context, rows, options)
    if not options.return_gates:
        return LayerOutput(h, state, None)
    return LayerOutput(h, state, _named([without(gate, padding).to(dtype) for gate in activated], c))
