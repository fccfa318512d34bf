"""One QRNN layer as a function: convolution over time, then pooling."""

from typing import NamedTuple

import torch
from torch import Tensor

from quasirnn.ops import autograd, checks, plain, reference
from quasirnn.ops import starts as sequence_starts
from quasirnn.ops.context import last_inputs
from quasirnn.ops.operators import state_type
from quasirnn.ops.padding import without
from quasirnn.ops.pooling import Lengths, checked_bias, zoneout_seed


class LayerState(NamedTuple):
    """Where a layer stands between two pieces of a sequence."""

    c: Tensor  # cells, (B, H)
    context: Tensor | None  # the last k - 1 inputs, (B, k - 1, D); None where none applies


class LayerGates(NamedTuple):
    """Everything a layer computed, after non-linearity and zoneout, each (T, B, H); o and i as the pooling has them."""

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

    Rows of `weight` are the gates z, f, o, i; its columns are the inputs, oldest first. Outside a row's own length x
    counts as zero, except for `context`, the k - 1 inputs before the first step.

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
    T, B, D = x.shape
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
        checks.same_kind(who, "weight", weight, "x", x)
    else:
        checks.same_device(who, "weight", weight, "x", x)
        bias = None if bias is None else checks.is_float(who, "bias", bias).to(x.dtype)
    return run_layer(
        x,
        weight,
        checked_bias(who, bias, B, width, x),
        checks.initial_state(who, "c0", c0, B, width // num_gates, x),
        context=context,
        rows=checks.Rows(
            checks.lengths(who, lengths, T, B, x.device), sequence_starts.check(who, starts, T, B, x.device)
        ),
        seed=zoneout_seed(who, zoneout, seed, x),
        options=LayerOptions(
            num_gates=num_gates,
            context_size=0 if reverse or look_ahead else k - 1,
            look_ahead=look_ahead,
            zoneout=checks.probability(who, "zoneout", zoneout),
            reverse=bool(reverse),
            return_gates=return_gates,
        ),
    )


class LayerOptions(NamedTuple):
    """What a layer is told besides tensors."""

    num_gates: int
    context_size: int  # earlier inputs that the state carries
    look_ahead: int
    zoneout: float
    reverse: bool
    return_gates: bool


def run_layer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    c0: Tensor | None,
    *,
    context: Tensor | None,
    rows: checks.Rows,
    seed: Tensor | None,
    options: LayerOptions,
) -> LayerOutput:
    """`qrnn_layer` on arguments that have been checked."""
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
    rows: checks.Rows,
    seed: Tensor | None,
    options: LayerOptions,
) -> LayerOutput:
    """What a layer returns, from what its operator does."""
    h, c_last, c, kept = outputs
    c = h if options.num_gates == 2 else c
    state = state_of(c_last, c, x, context, rows, options)
    if not options.return_gates:
        return LayerOutput(h, state, None)
    z, f, *others = kept.chunk(options.num_gates, dim=-1)
    if options.zoneout > 0 and seed is None:
        # The operator keeps the gates before the expectation.
        padding = plain.padding_of(kept, rows.lengths)
        activated = reference.expected_zoneout([z, f, *others], options.zoneout)
        z, f, *others = (without(gate, padding) for gate in activated)
    o, i = (*others, None, None)[:2]
    return LayerOutput(h, state, LayerGates(z, f, o, i, c))


def state_of(
    c_last: Tensor, c: Tensor, x: Tensor, context: Tensor | None, rows: checks.Rows, options: LayerOptions
) -> LayerState:
    """The state of every row, or of every packed sequence."""
    if rows.packed is None:
        return LayerState(c_last, last_inputs(x, context, options.context_size, rows.lengths, rows.starts))
    cells = c[rows.packed.ends(options.reverse), 0].to(c_last.dtype)
    return LayerState(cells, rows.packed.last_inputs(x, options.context_size))


def autocast_type(x: Tensor) -> torch.dtype | None:
    """Under autocast the operator's inputs are cast at its edge, as for a matrix multiplication; the state is not."""
    device = x.device.type
    if device == "meta" or x.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)
