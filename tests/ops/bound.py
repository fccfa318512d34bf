"""How far from the truth a result may be: the bound that GUARANTEES calls "right".

The error may be twice that of the reference in the same type, e_plain, plus 4 eps of the largest value. In float64 the
reference is itself the truth, and 32 eps are allowed for sums in another order. In float32 a layer's products are made
by either library that torch itself uses, BLAS and oneDNN (which computes nn.LSTM), and e_plain is the larger error.

How far off a single number comes out in plain PyTorch is luck: a cell whose results hold few numbers is drawn several
times, and error, e_plain and largest value are each taken over all draws. (With one draw, 3 of 576 cells with B = H = 1
exceed the bound on plain PyTorch itself, where nothing but the order of operations differs.)
"""

import itertools
from collections.abc import Callable
from unittest import mock

import torch
from torch import Tensor

from ops.cases import Case, exact, inputs, public, results
from quasirnn.benchmarks.correctness import Product, plain_products
from quasirnn.ops import backends, reference

NUMBERS = 32  # at least so many in every result of a cell: with 16, luck exceeded the bound in 1 of 3,000 cells
BACKEND = backends.report()["cpu"]["backend"]

Tensors = dict[str, Tensor]


def parts(values: Tensors, case: Case) -> Tensors:
    """The gates' pre-activations apart: their gradients differ in size where one gate is saturated."""
    name = "gradient of gates"
    if name not in values:
        return values
    chunks = values[name].chunk(len(case.pooling) + 1, dim=-1)
    return {n: v for n, v in values.items() if n != name} | {
        f"{name}, {g}": v for g, v in zip("zfoi", chunks, strict=False)
    }


def one_product(multiply: Product) -> Callable[..., Tensor]:
    """`reference.convolve` with one product over the whole window, as the layer has it, not one for each tap."""

    def convolve(
        x: Tensor,
        weight: Tensor,
        context: Tensor | None = None,
        *,
        look_ahead: int = 0,
        reverse: bool = False,
        lengths: Tensor | None = None,
        starts: Tensor | None = None,
    ) -> Tensor:
        if reverse:
            starts = reference.turned(starts, lengths)
            x = reference.flip(x, lengths)
            backwards = convolve(x, weight, context, look_ahead=look_ahead, lengths=lengths, starts=starts)
            return reference.flip(backwards, lengths)
        windows = torch.cat(reference.taps(x, weight.shape[1], context, look_ahead, lengths, starts), dim=-1)
        return multiply(windows.flatten(0, 1), weight.flatten(1)).view(*x.shape[:2], -1)

    return convolve


def plain_results(case: Case, dtype: torch.dtype, tensors: Tensors) -> list[Tensors]:
    """The same computation in plain PyTorch of the same type, by every library that it has for it."""
    if case.function != "layer" or dtype != torch.float32 or case.B == 0:
        return [parts(results(exact, case, tensors), case)]
    found = []
    for multiply in plain_products(dtype):
        with mock.patch.object(reference, "convolve", one_product(multiply)):
            found.append(parts(results(exact, case, tensors), case))
    return found


def measure(
    case: Case, dtype: torch.dtype, prepare: Callable[[Tensors], Tensors] = lambda tensors: tensors
) -> dict[str, tuple[float, float]]:
    """(error, bound) of every output and every gradient, each the largest over all draws of the cell."""
    found: dict[str, list[float]] = {}
    for draw in itertools.count():
        tensors = prepare(inputs(case, dtype, draw))
        truth = parts(results(exact, case, {name: value.double() for name, value in tensors.items()}), case)
        mine = parts(results(public, case, tensors), case)
        assert mine.keys() == truth.keys()
        # In float64 the plain computation is the truth itself.
        plain = [truth] if dtype == torch.float64 else plain_results(case, dtype, tensors)
        for name, true in truth.items():
            plain_error = torch.stack([(each[name].double() - true).abs() for each in plain])
            figures = ((mine[name].double() - true), plain_error, true)
            largest = found.setdefault(name, [0.0, 0.0, 0.0])
            # torch's maximum keeps a NaN, Python's may lose it.
            found[name] = [
                torch.maximum(f.abs().max(), torch.tensor(m)).item() for f, m in zip(figures, largest, strict=True)
            ]
        if (draw + 1) * min(value.numel() for value in truth.values()) >= NUMBERS:
            break
    floor = (32 if dtype == torch.float64 else 4) * torch.finfo(dtype).eps
    return {name: (error, 2 * plain + floor * largest) for name, (error, plain, largest) in found.items()}


def check(
    case: Case, dtype: torch.dtype, worst_cell, prepare: Callable[[Tensors], Tensors] = lambda tensors: tensors
) -> None:
    """Assert the bound for one cell and hand its ratio to the list that is printed at the end."""
    found = measure(case, dtype, prepare)
    # An error of zero is within a bound of zero; a NaN is within none.
    ratios = {name: error / bound if error else 0.0 for name, (error, bound) in found.items()}
    name = max(ratios, key=lambda name: ratios[name])
    worst_cell(f"{BACKEND} against float64, {str(dtype).removeprefix('torch.')}", ratios[name], f"{name}, {case}")
    beyond = {name: found[name] for name, ratio in ratios.items() if not ratio <= 1}
    assert not beyond, f"{case}: (error, bound) {beyond}"
