"""How exact sigmoid and tanh are: units in the last place against a wider type, over the whole range.

They show through f-pooling of one step: where f = 0 the cell is tanh(z); from c0 = 1 with z = 0 it is sigmoid(f).
"""

import numpy as np
import pytest
import torch

from quasirnn.ops import fused_pool

pytestmark = pytest.mark.backends

ULP = 4  # allowed


def mine(name: str, x: torch.Tensor) -> torch.Tensor:
    """tanh or sigmoid of every number of a vector, as the pass over the gates computes it."""
    H = len(x)
    if name == "tanh":
        return fused_pool(torch.cat([x, torch.full_like(x, -1e4)]).view(1, 1, 2 * H), pooling="f")[1][0]
    return fused_pool(torch.cat([torch.zeros_like(x), x]).view(1, 1, 2 * H), x.new_ones(1, H), pooling="f")[1][0]


def true(name: str, x: np.ndarray) -> np.ndarray:
    if name == "tanh":
        return np.tanh(x)
    return 1 / (1 + np.exp(-x))


def sweep(dtype: torch.dtype) -> torch.Tensor:
    """Numbers dense in bits from the smallest to beyond saturation, and dense in value where the action is."""
    bits, info = (torch.int32, torch.finfo(dtype)) if dtype == torch.float32 else (torch.int64, torch.finfo(dtype))
    ends = torch.tensor([info.smallest_normal, 1e3], dtype=dtype).view(bits)
    patterns = torch.linspace(0, 1, 300_001, dtype=torch.float64).mul(float(ends[1] - ends[0])).to(bits) + ends[0]
    logarithmic, linear = patterns.view(dtype), torch.linspace(0, 20, 300_001, dtype=dtype)
    return torch.cat([logarithmic, linear, -logarithmic, -linear])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_within_a_few_units_in_the_last_place(name, dtype, worst_cell):
    wide = np.float64 if dtype == torch.float32 else np.longdouble
    if np.finfo(wide).eps >= torch.finfo(dtype).eps:
        pytest.skip("numpy has no type wider than float64 here")
    x = sweep(dtype)
    with np.errstate(over="ignore"):
        truth = true(name, x.numpy().astype(wide))
    info = torch.finfo(dtype)
    error = np.abs(mine(name, x).numpy().astype(wide) - truth)
    # One unit at the size of the result. Below the smallest normal number only that number is promised.
    normal = np.abs(truth) >= info.smallest_normal
    unit = 2.0 ** (np.frexp(truth[normal].astype(np.float64))[1] - 1) * wide(info.eps)
    units = (error[normal] / unit).astype(np.float64)
    at = units.argmax()
    worst_cell(
        f"{name} {dtype}, {ULP} units in the last place".replace("torch.", ""),
        units[at] / ULP,
        f"x = {x[normal][at]:.9g}",
    )
    assert units[at] <= ULP
    assert (error[~normal] <= info.smallest_normal).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_tanh_keeps_its_relative_accuracy_near_zero(dtype):
    tiny = torch.logspace(-30, -5, 1001, dtype=dtype)
    # tanh(x) = x - x^3 / 3 + ...: below 1e-5 the difference from x is under 1e-10 of it.
    assert ((mine("tanh", tiny) / tiny).double() - 1).abs().max() <= 1e-10 + ULP * torch.finfo(dtype).eps
    assert torch.equal(mine("tanh", -tiny), -mine("tanh", tiny))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_ends_and_middle(dtype):
    infinity = float("inf")
    x = torch.tensor([0.0, infinity, -infinity, 1e4, -1e4], dtype=dtype)
    assert mine("tanh", x).tolist() == [0.0, 1.0, -1.0, 1.0, -1.0]
    assert mine("sigmoid", x).tolist() == pytest.approx([0.5, 1.0, 0.0, 1.0, 0.0], abs=1.2e-38)
    assert mine("tanh", torch.tensor([float("nan")], dtype=dtype)).isnan()
    assert mine("sigmoid", torch.tensor([float("nan")], dtype=dtype)).isnan()


def test_values_never_leave_their_range():
    x = sweep(torch.float32)
    assert mine("tanh", x).abs().max() <= 1
    assert mine("sigmoid", x).min() >= 0
    assert mine("sigmoid", x).max() <= 1
