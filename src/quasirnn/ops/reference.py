"""The paper's equations as plain loops: the definition of correct, in whatever type it is given (float64: the truth).

Every function is differentiable any number of times by autograd. Tensors are time-major: (T, B, D) or (T, B, H).
f = 1 keeps the old state, f = 0 replaces it. `reverse` is, by definition, the same function on the reversed sequence.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from quasirnn.ops.random_masks import zoned_channels
from quasirnn.ops.sequences import cuts, outside_window, padding_of, without

Maybe = Tensor | None


def flip(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Turn each batch row's sequence around within its own length; what lies past it stays where it is."""
    if lengths is None:
        return x.flip(0)
    t = torch.arange(x.shape[0], device=x.device)[:, None]
    source = torch.where(t < lengths, lengths - 1 - t, t)
    return x[source, torch.arange(x.shape[1], device=x.device)]


def turned(starts: Maybe, lengths: Maybe) -> Maybe:
    """Where sequences start in the order in which the reversed row is read."""
    first_read = cuts(starts, True, lengths)
    return None if first_read is None else flip(first_read[:, :, 0], lengths)


def linear_recurrence(
    a: Tensor, b: Tensor, h0: Maybe = None, *, reverse: bool = False, lengths: Maybe = None, starts: Maybe = None
) -> tuple[Tensor, Tensor]:
    """h[t] = a[t] * h[t-1] + b[t], where a sequence starts b[t]; past a row's length zero. Also each row's last h."""
    if reverse:
        starts = turned(starts, lengths)
        h, last = linear_recurrence(flip(a, lengths), flip(b, lengths), h0, lengths=lengths, starts=starts)
        return flip(h, lengths), last
    state = torch.zeros_like(b[0]) if h0 is None else h0
    steps = []
    for t in range(a.shape[0]):
        new = a[t] * (state if starts is None else without(state, starts[t][:, None])) + b[t]
        alive = torch.ones_like(new, dtype=torch.bool) if lengths is None else (t < lengths)[:, None].expand_as(new)
        state = torch.where(alive, new, state)
        steps.append(torch.where(alive, new, torch.zeros_like(new)))
    return torch.stack(steps), state


def f_pool(
    z: Tensor, f: Tensor, c0: Maybe = None, *, reverse: bool = False, lengths: Maybe = None, starts: Maybe = None
) -> tuple[Tensor, Tensor]:
    """Eq. 3: h[t] = f[t] * h[t-1] + (1 - f[t]) * z[t]."""
    return linear_recurrence(f, (1 - f) * z, c0, reverse=reverse, lengths=lengths, starts=starts)


def fo_pool(
    z: Tensor,
    f: Tensor,
    o: Tensor,
    c0: Maybe = None,
    *,
    reverse: bool = False,
    lengths: Maybe = None,
    starts: Maybe = None,
) -> tuple[Tensor, Tensor]:
    """Eq. 4: c as in eq. 3, h[t] = o[t] * c[t]."""
    c, last = f_pool(z, f, c0, reverse=reverse, lengths=lengths, starts=starts)
    return o * c, last


def ifo_pool(
    z: Tensor,
    f: Tensor,
    o: Tensor,
    i: Tensor,
    c0: Maybe = None,
    *,
    reverse: bool = False,
    lengths: Maybe = None,
    starts: Maybe = None,
) -> tuple[Tensor, Tensor]:
    """Eq. 5: c[t] = f[t] * c[t-1] + i[t] * z[t], h[t] = o[t] * c[t]."""
    c, last = linear_recurrence(f, i * z, c0, reverse=reverse, lengths=lengths, starts=starts)
    return o * c, last


def convolve(
    x: Tensor,
    weight: Tensor,
    context: Maybe = None,
    *,
    look_ahead: int = 0,
    reverse: bool = False,
    lengths: Maybe = None,
    starts: Maybe = None,
) -> Tensor:
    """Eq. 1 before the non-linearity: sum over j of weight[:, j] x[t + j - (k - 1 - look_ahead)].

    Zero outside a row, and outside the step's own sequence where several share a row.

    `weight` is (gates * H, k, D), oldest input first; `context` (B, k - 1, D) stands before the first step.
    """
    if reverse:
        starts = turned(starts, lengths)
        backwards = convolve(flip(x, lengths), weight, context, look_ahead=look_ahead, lengths=lengths, starts=starts)
        return flip(backwards, lengths)
    inputs = taps(x, weight.shape[1], context, look_ahead, lengths, starts)
    columns = [tap @ weight[:, j].T for j, tap in enumerate(inputs)]
    return sum(columns[1:], columns[0])


def taps(x: Tensor, k: int, context: Maybe, look_ahead: int, lengths: Maybe, starts: Maybe) -> list[Tensor]:
    """What each of the k places of the window sees at every step, oldest input first: k of (T, B, D)."""
    T, B, D = x.shape
    x = without(x, padding_of(x, lengths))
    before = x.new_zeros(k - 1 - look_ahead, B, D) if context is None else context.transpose(0, 1)
    padded = torch.cat([before, x, x.new_zeros(look_ahead, B, D)])
    outside = outside_window(starts, k, look_ahead)
    return [without(padded[j : j + T], outside[j]) for j in range(k)]


def activate(
    gates: Tensor, pooling: str, bias: Maybe = None, *, zoneout: float = 0.0, seed: Maybe = None
) -> list[Tensor]:
    """Eq. 1 and 6: non-linearities, and zoneout as f = 1 (with ifo also i = 0) on a random subset of channels.

    Without a seed zoneout is its expectation: see `expected_zoneout`.

    Args:
        gates: (T, B, gates * H) in the order z, f, o, i.
        bias: (gates * H) or (B, gates * H).
    Returns: z, f and, as the pooling has them, o and i.
    """
    gates = gates if bias is None else gates + bias
    z, *others = gates.chunk(len(pooling) + 1, dim=-1)
    activated = [torch.tanh(z), *map(torch.sigmoid, others)]
    if seed is None:
        return expected_zoneout(activated, zoneout)
    if zoneout > 0:
        zoned = zoned_channels(seed, activated[0].shape, zoneout)
        activated[1] = torch.where(zoned, torch.ones_like(z), activated[1])
        if pooling == "ifo":
            activated[3] = torch.where(zoned, torch.zeros_like(z), activated[3])
    return activated


def expected_zoneout(activated: list[Tensor], p: float) -> list[Tensor]:
    """What a random zoneout is on average (Krueger et al., 2016): f' = p + (1 - p) f, with ifo also i' = (1 - p) i."""
    z, f, *others = activated
    if len(others) == 2:
        others[1] = (1 - p) * others[1]
    return [z, p + (1 - p) * f, *others]


def pool(
    gates: Tensor,
    c0: Maybe = None,
    *,
    bias: Maybe = None,
    pooling: str = "fo",
    zoneout: float = 0.0,
    seed: Maybe = None,
    reverse: bool = False,
    lengths: Maybe = None,
    starts: Maybe = None,
) -> tuple[Tensor, Tensor]:
    """From pre-activations to (h, last cells): `activate`, then the pooling of that name."""
    pools: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"f": f_pool, "fo": fo_pool, "ifo": ifo_pool}
    activated = activate(gates, pooling, bias, zoneout=zoneout, seed=seed)
    return pools[pooling](*activated, c0, reverse=reverse, lengths=lengths, starts=starts)
