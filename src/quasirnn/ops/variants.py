"""Poolings of your own: ordinary tensor operations around the recurrence. docs/adding-a-pooling.md adds one.

They run on every device and under every transformation, with lengths, starts, states, zoneout and both directions, as
the recurrence does; only the fused pass over the gates is missing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quasirnn.ops import autograd, plain, reference
from quasirnn.ops.checks import FUSED, POOLINGS, Rows
from quasirnn.ops.layer import LayerGates, LayerOptions, LayerOutput, autocast_type, state_of
from quasirnn.ops.operators import state_type
from quasirnn.ops.padding import without
from quasirnn.ops.zoneout import zoned_channels

# recur(a, b) gives every c[t] = a[t] * c[t-1] + b[t], (T, B, H), and the last one of each row, (B, H).
Recur = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
# pool(recur, z, f, ...) gives the outputs h and the cells c, (T, B, H) each, and the last cells.
Pool = Callable[..., tuple[Tensor, Tensor, Tensor]]


class Variant(NamedTuple):
    gates: str
    pool: Pool


_variants: dict[str, Variant] = {}


def register_pooling(name: str, gates: str, pool: Pool) -> None:
    """Make `pooling=name` known to `QRNN` and `QRNNLayer`.

    Args:
        gates: the letters of its gates in the order of the weight's rows: "zf", "zfo" or "zfoi". z is a tanh, the
            others are sigmoids; zoneout acts on f, and on i.
        pool: pool(recur, z, f, ...) -> (h, c, last), as above, from the activated gates, (T, B, H) each in float32 or
            float64.
    """
    if gates not in POOLINGS.values():
        raise ValueError(f'register_pooling: gates must be "zf", "zfo" or "zfoi", got {gates!r}.')
    if name in FUSED:
        raise ValueError(f'register_pooling: the pooling "{name}" already exists.')
    POOLINGS[name] = gates
    _variants[name] = Variant(gates, pool)


def find(pooling: str) -> Variant | None:
    return _variants.get(pooling)


def run_variant(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    c0: Tensor | None,
    *,
    context: Tensor | None,
    rows: Rows,
    seed: Tensor | None,
    options: LayerOptions,
    variant: Variant,
) -> LayerOutput:
    """As `ops.layer.run_layer`."""
    dtype = autocast_type(x) or x.dtype
    order: dict[str, Any] = {"reverse": options.reverse, "lengths": rows.lengths, "starts": rows.starts}
    before = None if context is None else context.to(dtype)
    gates = reference.convolve(x.to(dtype), weight.to(dtype), before, look_ahead=options.look_ahead, **order)
    padding = plain.padding_of(gates, rows.lengths)
    gates = without(plain.wide(gates), padding) + (0 if bias is None else plain.wide(bias))
    z, *others = gates.chunk(len(variant.gates), dim=-1)
    activated = [torch.tanh(z), *map(torch.sigmoid, others)]
    if seed is None:
        activated = reference.expected_zoneout(activated, options.zoneout)
    else:
        zoned = zoned_channels(seed, z.shape, options.zoneout)
        activated[1] = activated[1].masked_fill(zoned, 1)
        activated[3:] = [gate.masked_fill(zoned, 0) for gate in activated[3:]]
    first = None if c0 is None else c0.to(state_type(dtype)).contiguous()

    def recur(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        a, b = (without(part, padding).contiguous() for part in (a, b))
        c, last = autograd.recurrence(a, b, first, rows.lengths, rows.starts, options.reverse)
        return c, last

    h, c, last = variant.pool(recur, *activated)
    h, c = (without(part, padding).to(dtype) for part in (h, c))
    state = state_of(last, c, x, context, rows, options)
    if not options.return_gates:
        return LayerOutput(h, state, None)
    z, f, *others = (without(gate, padding).to(dtype) for gate in activated)
    o, i = (*others, None, None)[:2]
    return LayerOutput(h, state, LayerGates(z, f, o, i, c))
