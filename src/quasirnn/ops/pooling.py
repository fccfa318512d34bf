"""Pooling over time: the recurrent half of a QRNN, as functions on tensors.

Everything is time-major, (T, B, H). `reverse=True` reads each row from its end to its beginning. `lengths` gives each
row's own length: outputs past it are zero and the last state is taken at the row's own end; what the padding holds is
never read. 16-bit gates run with a float32 state, which is also what `c_last` comes back as.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from quasirnn.ops import checks, operators
from quasirnn.ops.plain import COMPLEMENT, INPUT, ONE

Lengths = Tensor | Sequence[int] | None


def f_pool(
    z: Tensor, f: Tensor, c0: Tensor | None = None, *, reverse: bool = False, lengths: Lengths = None
) -> tuple[Tensor, Tensor]:
    """Gated running average, "dynamic average pooling" (paper, eq. 3).

        h[t] = f[t] * h[t-1] + (1 - f[t]) * z[t]

    f = 1 keeps the old state, f = 0 replaces it.

    Args:
        z: candidates, (T, B, H).
        f: forget gate in [0, 1], (T, B, H).
        c0: initial state, (B, H); zero if not given.
    Returns:
        h, (T, B, H), and the last state of each row, (B, H).

    >>> z = torch.tensor([1.0, 2.0]).view(2, 1, 1)
    >>> h, last = f_pool(z, torch.tensor([0.5, 1.0]).view(2, 1, 1))
    >>> h.flatten().tolist()  # half of the first candidate, then kept
    [0.5, 0.5]
    """
    return _recur("f_pool", {"z": z, "f": f}, c0, COMPLEMENT, reverse, lengths)


def fo_pool(
    z: Tensor, f: Tensor, o: Tensor, c0: Tensor | None = None, *, reverse: bool = False, lengths: Lengths = None
) -> tuple[Tensor, Tensor]:
    """Gated running average followed by an output gate (paper, eq. 4).

        c[t] = f[t] * c[t-1] + (1 - f[t]) * z[t]
        h[t] = o[t] * c[t]

    f = 1 keeps the old state, f = 0 replaces it. Arguments as in `f_pool`; o is the output gate, (T, B, H).
    Returns h and the last cells c, before the output gate.
    """
    c, last = _recur("fo_pool", {"z": z, "f": f, "o": o}, c0, COMPLEMENT, reverse, lengths)
    return _gated(o, c, lengths), last


def ifo_pool(
    z: Tensor,
    f: Tensor,
    o: Tensor,
    i: Tensor,
    c0: Tensor | None = None,
    *,
    reverse: bool = False,
    lengths: Lengths = None,
) -> tuple[Tensor, Tensor]:
    """Independent input and forget gates, then an output gate (paper, eq. 5).

        c[t] = f[t] * c[t-1] + i[t] * z[t]
        h[t] = o[t] * c[t]

    f = 1 keeps the old state and i = 1 adds the whole candidate, so that cells can grow beyond [-1, 1].
    Arguments as in `fo_pool`; i is the input gate, (T, B, H). Returns h and the last cells.
    """
    c, last = _recur("ifo_pool", {"z": z, "f": f, "o": o, "i": i}, c0, INPUT, reverse, lengths)
    return _gated(o, c, lengths), last


def linear_recurrence(
    a: Tensor, b: Tensor, h0: Tensor | None = None, *, reverse: bool = False, lengths: Lengths = None
) -> tuple[Tensor, Tensor]:
    """The recurrence under every pooling: h[t] = a[t] * h[t-1] + b[t].

    Args:
        a: factor, any real number, (T, B, H).
        b: what is added, (T, B, H).
        h0: initial state, (B, H); zero if not given.
    Returns:
        h, (T, B, H), and the last state of each row, (B, H).

    >>> ones = torch.ones(4, 1, 1)
    >>> linear_recurrence(ones, ones)[0].flatten().tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    return _recur("linear_recurrence", {"b": b, "a": a}, h0, ONE, reverse, lengths, state_name="h0")


def fused_pool(
    gates: Tensor,
    c0: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    pooling: str = "fo",
    zoneout: float = 0.0,
    seed: Tensor | None = None,
    reverse: bool = False,
    lengths: Lengths = None,
) -> tuple[Tensor, Tensor]:
    """Bias, non-linearity, zoneout, recurrence and output gate in one pass (paper, eq. 1 and 3-6).

        z = tanh(.)   f, o, i = sigmoid(.)   then the pooling of that name

    Args:
        gates: pre-activations in the order z, f, o, i side by side, (T, B, gates * H); f has 2 gates, fo 3, ifo 4.
        c0: initial cells, (B, H); zero if not given.
        bias: added to the pre-activations: (gates * H), or one per batch row, (B, gates * H).
        zoneout: probability p that a channel keeps its state for a step.
        seed: one int64, for training: a random mask, a function of (seed, t, b, channel), the same on every device.
            Without it zoneout is its expectation, as in eval: f' = p + (1 - p) f, and for ifo i' = (1 - p) i.
    Returns:
        h, (T, B, H), and the last cells, (B, H).
    """
    who = "fused_pool"
    kinds = len(checks.pooling(who, pooling)) + 1
    gates = checks.sequence(who, "gates", gates, f"(T, B, {kinds} * H)")
    T, B, width = gates.shape
    if width == 0 or width % kinds:
        raise ValueError(
            f'{who}: with pooling "{pooling}" the last dimension of gates must be {kinds} * H, got {width} '
            f"in shape {tuple(gates.shape)}."
        )
    c0 = checks.initial_state(who, "c0", c0, B, width // kinds, gates)
    h, last, _, _ = operators.pool(
        gates.contiguous(),
        checked_bias(who, bias, B, width, gates),
        c0,
        checks.lengths(who, lengths, T, B, gates.device),
        zoneout_seed(who, checks.probability(who, "zoneout", zoneout), seed, gates),
        float(zoneout),
        kinds,
        bool(reverse),
        False,
    )
    return h, last


def checked_bias(who: str, bias: Tensor | None, B: int, width: int, beside: Tensor) -> Tensor | None:
    """A bias for all batch rows, or one for each."""
    if bias is None:
        return None
    bias = checks.is_float(who, "bias", bias)
    # B only against a second dimension: compared with the width, a dynamic B would be guarded for nothing.
    if tuple(bias.shape) != ((width,) if bias.dim() == 1 else (B, width)):
        raise ValueError(
            f"{who}: bias must have shape (gates * H) = ({width},) or (B, gates * H) = ({B}, {width}), "
            f"got {tuple(bias.shape)}."
        )
    checks.same_kind(who, "bias", bias, "the input", beside)
    return bias.contiguous()


def zoneout_seed(who: str, zoneout: float, seed: Tensor | None, beside: Tensor) -> Tensor | None:
    """The seed of a random zoneout, checked; None where there is none."""
    if zoneout == 0 or seed is None:
        return None
    seed = checks.is_tensor(who, "seed", seed)
    if seed.dtype != torch.int64 or seed.numel() != 1:
        raise TypeError(f"{who}: seed must be one int64, got {seed.dtype} of shape {tuple(seed.shape)}.")
    return seed.reshape(()).to(beside.device)


def _recur(
    who: str,
    gates: dict[str, Tensor],
    c0: Tensor | None,
    weight: int,
    reverse: bool,
    lengths: Lengths,
    state_name: str = "c0",
) -> tuple[Tensor, Tensor]:
    """Checks, then the operator. The first gate is what enters the state, the second what multiplies it."""
    (z_name, z), (f_name, f), *others = gates.items()
    z = checks.sequence(who, z_name, z)
    f = checks.like(who, f_name, f, z_name, z)
    for name, gate in others:
        checks.like(who, name, gate, z_name, z)
    T, B, H = z.shape
    if H == 0:
        raise ValueError(f"{who}: {z_name} has no channels, shape {tuple(z.shape)}; H must be at least 1.")
    i = gates["i"].contiguous() if weight == INPUT else None
    c0 = checks.initial_state(who, state_name, c0, B, H, z)
    lengths = checks.lengths(who, lengths, T, B, z.device)
    return operators.recurrence(f.contiguous(), z.contiguous(), i, c0, lengths, weight, bool(reverse))


def _gated(o: Tensor, c: Tensor, lengths: Lengths) -> Tensor:
    """o * c, zero in the padding even where o is NaN there."""
    h = o * c
    if lengths is None:
        return h
    lengths = torch.as_tensor(lengths, device=h.device)
    return h.masked_fill((torch.arange(h.shape[0], device=h.device)[:, None] >= lengths)[:, :, None], 0)
