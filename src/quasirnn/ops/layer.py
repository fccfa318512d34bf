"""One QRNN layer as a function: convolution over time, then pooling."""

from typing import NamedTuple

import torch
from torch import Tensor

from quasirnn.ops import checks, operators, plain, reference
from quasirnn.ops.pooling import Lengths, checked_bias, zoneout_seed


class LayerOutput(NamedTuple):
    """What a layer computed. `c` and `gates` are None unless they were asked for."""

    h: Tensor  # (T, B, H)
    c_last: Tensor  # (B, H)
    c: Tensor | None  # (T, B, H), before the output gate
    gates: Tensor | None  # (T, B, gates * H), after non-linearity and zoneout, in the order z, f, o, i


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
        zoneout, seed: as in `fused_pool`: a random mask with a seed, its expectation without.
        return_gates: also return all cells and the activated gates, differentiable.
    """
    who = "qrnn_layer"
    kinds = len(checks.pooling(who, pooling)) + 1
    x = checks.sequence(who, "x", x, "(T, B, D)")
    weight = checks.is_float(who, "weight", weight)
    T, B, D = x.shape
    if weight.dim() != 3 or weight.shape[0] % kinds or weight.shape[2] != D or 0 in weight.shape:
        raise ValueError(
            f'{who}: with pooling "{pooling}" and D = {D} inputs, weight must have shape ({kinds} * H, k, {D}), '
            f"got {tuple(weight.shape)}."
        )
    width, k, _ = weight.shape
    if not 0 <= checks.integer(who, "look_ahead", look_ahead) < k:
        raise ValueError(f"{who}: look_ahead must lie in 0 .. k - 1 = {k - 1}, got {look_ahead}.")
    if context is not None:
        if reverse or look_ahead:
            raise ValueError(f"{who}: a context goes with a causal layer that reads forwards only.")
        context = checks.shaped(who, "context", context, "(B, k - 1, D)", (B, k - 1, D), x)
    lengths = checks.lengths(who, lengths, T, B, x.device)
    dtype = _autocast_type(x)
    if dtype is not None:
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    checks.same_kind(who, "weight", weight, "x", x)
    h, c_last, c, gates = operators.layer(
        x.contiguous(),
        weight.contiguous(),
        checked_bias(who, bias, B, width, x),
        None if context is None else context.to(x.dtype).contiguous(),
        checks.initial_state(who, "c0", c0, B, width // kinds, x),
        lengths,
        zoneout_seed(who, checks.probability(who, "zoneout", zoneout), seed, x),
        float(zoneout),
        kinds,
        look_ahead,
        bool(reverse),
        return_gates,
    )
    if not return_gates:
        return LayerOutput(h, c_last, None, None)
    if zoneout > 0 and seed is None:
        # The operator keeps the gates before the expectation.
        acting = reference.expected_zoneout(list(gates.chunk(kinds, dim=-1)), zoneout)
        gates = plain.without(torch.cat(acting, dim=-1), plain.padding_of(gates, lengths))
    return LayerOutput(h, c_last, h if pooling == "f" else c, gates)


def _autocast_type(x: Tensor) -> torch.dtype | None:
    """Under autocast the operator's inputs are cast at its edge, as for a matrix multiplication; the state is not."""
    device = x.device.type
    if device == "meta" or x.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)
