"""Pooling over time: the recurrent half of a QRNN, as functions on tensors.

Everything is time-major, (T, B, H). `reverse=True` reads each row from its end to its beginning. `lengths` gives each
row's own length: outputs past it are zero and the last state is taken at the row's own end; what the padding holds is
never read. `starts`, a boolean (T, B), is True where a new sequence starts inside a row: the state is zero before it.
16-bit gates have a float32 state, and `c_last` is float32 too.
"""

import torch
from torch import Tensor

from quasirnn.ops import autograd, checks
from quasirnn.ops.plain import wide
from quasirnn.ops.sequences import Lengths, Rows, padding_of, without


def f_pool(
    z: Tensor,
    f: Tensor,
    c0: Tensor | None = None,
    *,
    reverse: bool = False,
    lengths: Lengths = None,
    starts: Tensor | None = None,
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
    return _pool("f_pool", {"z": z, "f": f}, c0, reverse, lengths, starts)


def fo_pool(
    z: Tensor,
    f: Tensor,
    o: Tensor,
    c0: Tensor | None = None,
    *,
    reverse: bool = False,
    lengths: Lengths = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gated running average followed by an output gate (paper, eq. 4).

        c[t] = f[t] * c[t-1] + (1 - f[t]) * z[t]
        h[t] = o[t] * c[t]

    f = 1 keeps the old state, f = 0 replaces it. Arguments as in `f_pool`; o is the output gate, (T, B, H).
    Returns h and the last cells c, before the output gate.
    """
    return _pool("fo_pool", {"z": z, "f": f, "o": o}, c0, reverse, lengths, starts)


def ifo_pool(
    z: Tensor,
    f: Tensor,
    o: Tensor,
    i: Tensor,
    c0: Tensor | None = None,
    *,
    reverse: bool = False,
    lengths: Lengths = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Independent input and forget gates, then an output gate (paper, eq. 5).

        c[t] = f[t] * c[t-1] + i[t] * z[t]
        h[t] = o[t] * c[t]

    f = 1 keeps the old state and i = 1 adds the whole candidate, so that cells can grow beyond [-1, 1].
    Arguments as in `fo_pool`; i is the input gate, (T, B, H). Returns h and the last cells.
    """
    return _pool("ifo_pool", {"z": z, "f": f, "o": o, "i": i}, c0, reverse, lengths, starts)


def linear_recurrence(
    a: Tensor,
    b: Tensor,
    h0: Tensor | None = None,
    *,
    reverse: bool = False,
    lengths: Lengths = None,
    starts: Tensor | None = None,
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
    h0, rows = _check("linear_recurrence", {"b": b, "a": a}, "h0", h0, lengths, starts)
    h, last = autograd.recurrence(a.contiguous(), b.contiguous(), h0, rows.lengths, rows.starts, bool(reverse))
    return h, last


def fused_pool(
    gates: Tensor,
    c0: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    pooling: str = "fo",
    zoneout: float = 0.0,
    seed: Tensor | None = None,
    reverse: bool = False,
    lengths: Lengths | Rows = None,
    starts: Tensor | None = None,
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
    num_gates = len(checks.pooling(who, pooling)) + 1
    gates = checks.sequence(who, "gates", gates, f"(T, B, {num_gates} * H)")
    _, B, width = gates.shape
    if width == 0 or width % num_gates:
        raise ValueError(
            f'{who}: with pooling "{pooling}" the last dimension of gates must be {num_gates} * H, got {width} '
            f"in shape {tuple(gates.shape)}."
        )
    c0 = checks.initial_state(who, "c0", c0, B, width // num_gates, gates)
    rows = Rows.checked(who, gates, lengths, starts)
    h, last, _, _ = autograd.pool(
        gates.contiguous(),
        checked_bias(who, bias, B, width, gates),
        c0,
        rows.lengths,
        rows.starts,
        zoneout_seed(who, checks.probability(who, "zoneout", zoneout), seed, gates),
        float(zoneout),
        num_gates,
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
    checks.same_type_and_device(who, "bias", bias, "the input", beside)
    return bias.contiguous()


def zoneout_seed(who: str, zoneout: float, seed: Tensor | None, beside: Tensor) -> Tensor | None:
    """The seed of a random zoneout, checked; None where there is none."""
    if zoneout == 0 or seed is None:
        return None
    seed = checks.is_tensor(who, "seed", seed)
    if seed.dtype != torch.int64 or seed.numel() != 1:
        raise TypeError(f"{who}: seed must be one int64, got {seed.dtype} of shape {tuple(seed.shape)}.")
    return seed.reshape(()).to(beside.device)


def _pool(
    who: str, gates: dict[str, Tensor], c0: Tensor | None, reverse: bool, lengths: Lengths, starts: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Pooling on activated gates: c[t] = f[t] c[t-1] + b[t] with b = (1 - f) z or i z, then the output gate.

    16-bit gates are multiplied in float32, as the state is.
    """
    c0, rows = _check(who, gates, "c0", c0, lengths, starts)
    dtype = gates["z"].dtype
    padding = padding_of(gates["z"], rows.lengths)
    gates = {name: without(wide(gate), padding) for name, gate in gates.items()}
    z, f = gates["z"], gates["f"]
    b = gates["i"] * z if "i" in gates else (1 - f) * z
    c, last = autograd.recurrence(f.contiguous(), b.contiguous(), c0, rows.lengths, rows.starts, bool(reverse))
    return (gates["o"] * c if "o" in gates else c).to(dtype), last


def _check(
    who: str,
    gates: dict[str, Tensor],
    state_name: str,
    state: Tensor | None,
    lengths: Lengths,
    starts: Tensor | None,
) -> tuple[Tensor | None, Rows]:
    """Check the gates; returns the initial state, and where sequences begin and end, both checked."""
    (first, z), *others = gates.items()
    z = checks.sequence(who, first, z)
    for name, gate in others:
        checks.like(who, name, gate, first, z)
    _, B, H = z.shape
    if H == 0:
        raise ValueError(f"{who}: {first} has no channels, shape {tuple(z.shape)}; H must be at least 1.")
    return checks.initial_state(who, state_name, state, B, H, z), Rows.checked(who, z, lengths, starts)
