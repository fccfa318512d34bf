"""The sample inputs that feed the parity, gradient, padding and operator tests, and how one of them is run.

A `Case` says which call; `inputs` draws its tensors; `public` runs it on quasirnn.ops and `exact` on the reference.
"""

import itertools
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from quasirnn import ops
from quasirnn.ops import reference

POOLINGS = ("f", "fo", "ifo")


@dataclass(frozen=True)
class Case:
    """One call: of qrnn_layer, fused_pool, the pooling functions on activated gates, or linear_recurrence."""

    function: str  # "layer", "fused", "gated" or "linear"
    T: int
    B: int
    H: int
    pooling: str = "fo"
    k: int = 2
    D: int = 3
    look_ahead: bool = False
    reverse: bool = False
    lengths: bool = False
    state: bool = False  # initial cells and, for a causal forward layer, a context
    zoneout: float = 0.0
    expected: bool = False  # zoneout without a seed, as in eval
    bias: str = "one"  # "none", "one" or "rows"
    gates: bool = False  # also all cells and gates out of the layer
    starts: bool = False  # several sequences in a row

    def __str__(self) -> str:
        shown = {field.name: getattr(self, field.name) for field in fields(self)}
        sizes = " ".join(f"{name}{shown.pop(name)}" for name in ("T", "B", "H"))
        words = [shown.pop("function"), shown.pop("pooling"), sizes]
        return " ".join(words + [f"{name}={value}" for name, value in shown.items() if value is not False])

    @property
    def width(self) -> int:
        return (len(self.pooling) + 1) * self.H

    @property
    def steps_ahead(self) -> int:
        return self.k // 2 if self.look_ahead else 0

    def row_lengths(self) -> Tensor | None:
        """The first row is the longest one, but not always T long."""
        if not self.lengths:
            return None
        drawn = random.Random(str(self)).choices(range(1, self.T + 1), k=self.B)
        return torch.tensor(sorted(drawn, reverse=True), dtype=torch.int64)

    def row_starts(self) -> Tensor | None:
        if not self.starts:
            return None
        return torch.rand(self.T, self.B, generator=torch.Generator().manual_seed(zlib.crc32(str(self).encode()))) < 0.3

    def seed(self) -> Tensor | None:
        return torch.tensor(zlib.crc32(str(self).encode()) << 31) if self.zoneout and not self.expected else None


def inputs(case: Case, dtype: torch.dtype, draw: int = 0) -> dict[str, Tensor]:
    """The float tensors of a call, by argument name. The values are exact in `dtype`, so that no error starts here."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{case} {draw}".encode()))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    T, B, H, D, k, W = case.T, case.B, case.H, case.D, case.k, case.width
    tensors: dict[str, Tensor] = {}
    if case.function == "layer":
        tensors["x"] = normal(T, B, D)
        tensors["weight"] = normal(W, k, D) / (k * D) ** 0.5
    elif case.function == "fused":
        tensors["gates"] = normal(T, B, W)
    elif case.function == "linear":
        tensors["a"], tensors["b"] = normal(T, B, H).tanh(), normal(T, B, H)
    else:
        tensors["z"] = normal(T, B, H).tanh()
        for name in case.pooling:
            tensors[{"f": "f", "o": "o", "i": "i"}[name]] = normal(T, B, H).sigmoid()
    if case.function in ("layer", "fused") and case.bias != "none":
        tensors["bias"] = normal(*((B, W) if case.bias == "rows" else (W,)))
    if case.state:
        tensors["h0" if case.function == "linear" else "c0"] = normal(B, H)
        if case.function == "layer" and not case.reverse and not case.steps_ahead and k > 1:
            tensors["context"] = normal(B, k - 1, D)
    return {name: value.to(dtype) for name, value in tensors.items()}


def public(case: Case, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The case through the public functions."""
    order = {"reverse": case.reverse, "lengths": case.row_lengths(), "starts": case.row_starts()}
    fused = {"pooling": case.pooling, "zoneout": case.zoneout, "seed": case.seed(), **order}
    if case.function == "layer":
        out = ops.qrnn_layer(**tensors, **fused, look_ahead=case.steps_ahead, return_gates=case.gates)
        outputs = {"h": out.h, "c_last": out.state.c}
        if out.gates is None:
            return outputs
        gates = torch.cat([gate for gate in out.gates[:4] if gate is not None], dim=-1)
        return outputs | {"c": out.gates.c, "gates": gates}
    if case.function == "fused":
        h, c_last = ops.fused_pool(**tensors, **fused)
    elif case.function == "linear":
        h, c_last = ops.linear_recurrence(**tensors, **order)
    else:
        h, c_last = {"f": ops.f_pool, "fo": ops.fo_pool, "ifo": ops.ifo_pool}[case.pooling](**tensors, **order)
    return {"h": h, "c_last": c_last}


def exact(case: Case, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The case through the reference: the truth where the tensors are float64, else what plain PyTorch makes of it."""
    order = {"reverse": case.reverse, "lengths": case.row_lengths(), "starts": case.row_starts()}
    fused = {"zoneout": case.zoneout, "seed": case.seed()}
    if case.function == "linear":
        return dict(zip(("h", "c_last"), reference.linear_recurrence(**tensors, **order), strict=True))
    pool = {"f": reference.f_pool, "fo": reference.fo_pool, "ifo": reference.ifo_pool}[case.pooling]
    if case.function == "gated":
        return dict(zip(("h", "c_last"), pool(**tensors, **order), strict=True))
    tensors = dict(tensors)
    bias, c0 = tensors.pop("bias", None), tensors.pop("c0", None)
    if case.function == "fused":
        h, c_last = reference.pool(tensors["gates"], c0, bias=bias, pooling=case.pooling, **fused, **order)
        return {"h": h, "c_last": c_last}
    pre = reference.convolve(**tensors, look_ahead=case.steps_ahead, **order)
    activated = reference.activate(pre, case.pooling, bias, **fused)
    h, c_last = pool(*activated, c0, **order)
    if not case.gates:
        return {"h": h, "c_last": c_last}
    z, f, *others = activated
    b = others[1] * z if case.pooling == "ifo" else (1 - f) * z
    c, _ = reference.linear_recurrence(f, b, c0, **order)
    gates = torch.cat(activated, dim=-1)
    return {"h": h, "c_last": c_last, "c": c, "gates": without_padding(gates, order["lengths"])}


def without_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return x
    return x.masked_fill((torch.arange(x.shape[0])[:, None] >= lengths)[:, :, None], 0)


def upstream(outputs: dict[str, Tensor]) -> list[Tensor]:
    """Fixed random gradients for the outputs, the same in every type: multiples of 1/32 of moderate size are exact."""
    generator = torch.Generator().manual_seed(1)
    return [(32 * torch.randn(v.shape, generator=generator)).round().div(32).to(v.dtype) for v in outputs.values()]


def results(
    run: Callable[[Case, dict[str, Tensor]], dict[str, Tensor]], case: Case, tensors: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Every output of a case and the gradient of every input, under fixed random upstream gradients."""
    leaves = {name: value.clone().requires_grad_() for name, value in tensors.items()}
    outputs = run(case, leaves)
    gradients = torch.autograd.grad(list(outputs.values()), list(leaves.values()), upstream(outputs))
    named = {f"gradient of {name}": value for name, value in zip(leaves, gradients, strict=True)}
    return {name: value.detach() for name, value in (outputs | named).items()}


def pairwise(seed: int, **choices: tuple) -> list[dict]:
    """Few combinations that hold every pair of choices at least once: greedily the best of some random ones."""
    draw = random.Random(seed)
    names = list(choices)
    missing = {((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in choices[a] for y in choices[b]}

    def pairs(row: dict) -> set:
        return set(itertools.combinations(row.items(), 2))

    rows, in_order = [], sorted(missing, key=repr)
    while missing:
        # Start from a pair that is still missing, so that every round makes progress.
        start = dict(draw.choice(in_order))
        tries = [{name: start.get(name, draw.choice(choices[name])) for name in names} for _ in range(50)]
        rows.append(max(tries, key=lambda row: len(pairs(row) & missing)))
        missing -= pairs(rows[-1])
        in_order = [pair for pair in in_order if pair in missing]
    return rows


def axes(function: str) -> dict[str, tuple]:
    """What a function can be asked for, besides sizes."""
    switch = (False, True)
    choices: dict[str, tuple] = {"reverse": switch, "lengths": switch, "state": switch}
    if function != "linear":
        choices["pooling"] = POOLINGS
    if function in ("layer", "fused"):
        choices |= {"zoneout": (0.0, 0.3), "expected": switch}
    if function == "layer":
        choices |= {"look_ahead": switch, "gates": switch}
    return choices


def variants(function: str, **sizes: int) -> list[Case]:
    """Every variant of a function at one small size."""
    choices = axes(function)
    rows = (dict(zip(choices, row, strict=True)) for row in itertools.product(*choices.values()))
    return [Case(function, **sizes, **row) for row in rows if row.get("zoneout") or not row.get("expected")]
