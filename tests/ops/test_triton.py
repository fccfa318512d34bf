"""The GPU kernels against the float64 reference: on the CPU under Triton's interpreter, on a GPU where there is one.

The interpreter proves logic and rounding; that the kernels also compile for real cards is shown by compiling them. The
operators are re-registered for the CPU while a test runs, so that a call goes the way it goes on a GPU: autograd, then
the plain layer, then these kernels.
"""

import functools
import importlib
import importlib.util
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from nn.packings import check_offsets, check_starts
from ops.bound import parts
from ops.cases import POOLINGS, Case, exact, inputs, pairwise, public, results
from processes import run_with_torch
from quasirnn.ops import backends, fused_pool, plain
from quasirnn.ops.random_masks import MASK, philox, zoned_channels

pytest.importorskip("triton", reason="triton is not installed, so the GPU kernels cannot even be interpreted")
pytestmark = pytest.mark.slow

Run = Callable[[Case, dict[str, Tensor]], dict[str, Tensor]]
OPERATORS = ("recurrence", "recurrence_backward", "pool", "pool_backward")
DEVICES = ["cpu", "cuda"] if backends.report()["cuda"]["backend"] == "triton" else ["cpu"]

SWITCH = (False, True)
# T, B, H: no H fills its block.
COMMON = {
    "size": ((2, 3, 33), (5, 2, 3), (6, 1, 40)),
    "reverse": SWITCH,
    "lengths": SWITCH,
    "state": SWITCH,
    "starts": SWITCH,
}
FUSED = {"pooling": POOLINGS, "zoneout": (0.0, 0.3), "expected": SWITCH, "bias": ("none", "one", "rows")}
TYPES = {"dtype": (torch.float32, torch.bfloat16)}


def cells(function: str, seed: int, **choices: tuple) -> list:
    rows = pairwise(seed, **COMMON, **TYPES, **choices)
    found = []
    for number, row in enumerate(rows):
        (T, B, H), dtype = row.pop("size"), row.pop("dtype")
        case = Case(function, T, B, H, **row)
        # A launch takes up to a second under the interpreter: every second cell by default.
        marks = pytest.mark.full if number % 2 else ()
        found.append(pytest.param(case, dtype, id=f"{case} {str(dtype).removeprefix('torch.')}", marks=marks))
    return found


CELLS = [
    *cells("fused", 11, **FUSED),
    *cells("gated", 12, pooling=POOLINGS),
    *cells("linear", 13),
    *cells("layer", 14, pooling=POOLINGS, gates=SWITCH),
    pytest.param(Case("fused", 66, 1, 17), torch.float32, id="long"),
    pytest.param(Case("fused", 5, 2, 3, "ifo", lengths=True, zoneout=0.3), torch.float64, id="float64"),
    pytest.param(Case("fused", 5, 2, 3, "ifo", lengths=True, zoneout=0.3), torch.float16, id="float16"),
]


@functools.cache
def interpreted() -> ModuleType:
    """A copy of the kernels that runs on CPU tensors. The variable is read when a kernel is defined, and only then."""
    path = Path(plain.__file__).with_name("triton_kernels.py")
    spec = importlib.util.spec_from_file_location("interpreted_triton_kernels", path)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        spec.loader.exec_module(module)
    return module


@pytest.fixture(params=DEVICES)
def device(request):
    """The device on which the public functions run the GPU kernels."""
    if request.param == "cuda":
        yield "cuda"
        return
    library = torch.library.Library("quasirnn", "IMPL")
    with warnings.catch_warnings():
        # The dispatcher warns of the override, which is meant.
        warnings.simplefilter("ignore")
        for name in OPERATORS:
            library.impl(name, getattr(interpreted(), name), "CPU", allow_override=True)
        for name in ("layer", "layer_backward"):
            library.impl(name, getattr(plain, name), "CPU", allow_override=True)
    yield "cpu"
    library._destroy()


def on(device: str) -> Run:
    def run(case: Case, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        outputs = public(case, {name: value.to(device) for name, value in tensors.items()})
        return {name: value.cpu() for name, value in outputs.items()}

    return run


def ratios(case: Case, dtype: torch.dtype, device: str) -> dict[str, float]:
    """Error / bound of every output and gradient, each the largest over some draws: at least 16 numbers.

    With 16-bit gates the state is float32, so plain PyTorch computes in float32 too, and `c_last` is held to the bound
    of that type, except where the gates themselves were rounded: behind the layer's matrix multiplication.
    """
    found: dict[str, list[float]] = {}
    for draw in range(-(-16 // (case.B * case.H))):
        tensors = inputs(case, dtype, draw)
        exactly = parts(results(exact, case, {name: value.double() for name, value in tensors.items()}), case)
        plainly = parts(results(exact, case, {name: plain.wide(value) for name, value in tensors.items()}), case)
        mine = parts(results(on(device), case, tensors), case)
        assert mine.keys() == exactly.keys()
        for name, true in exactly.items():
            figures = (mine[name].double() - true, plainly[name].to(mine[name].dtype).double() - true, true)
            # torch's maximum keeps a NaN, Python's may lose it.
            before = found.get(name, [0.0] * 4)[:3]
            largest = (torch.maximum(x.abs().max(), torch.tensor(b)) for x, b in zip(figures, before, strict=True))
            eps = torch.finfo(dtype if case.function == "layer" else mine[name].dtype).eps
            found[name] = [*map(float, largest), eps]
    # In float64 the plain computation is the truth itself.
    floor = 32 if dtype == torch.float64 else 4
    return {
        name: error / (2 * plain_error + floor * eps * size) if error else 0.0
        for name, (error, plain_error, size, eps) in found.items()
    }


def check(case: Case, dtype: torch.dtype, device: str, worst_cell) -> None:
    found = ratios(case, dtype, device)
    name = max(found, key=lambda name: found[name])
    kind = "the interpreter" if device == "cpu" else device
    worst_cell(f"triton on {kind} against float64, {str(dtype).removeprefix('torch.')}", found[name], f"{name}, {case}")
    assert all(ratio <= 1 for ratio in found.values()), f"{case}: error / bound {found}"


def test_some_forty_cells():
    assert 40 <= len(CELLS) <= 60


@pytest.mark.parametrize(("case", "dtype"), CELLS)
def test_guarantee_right_triton(case, dtype, device, worst_cell):
    check(case, dtype, device, worst_cell)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in (0, 2, 3, 4, 5))])
def test_packed_sequences_equal_separate_calls(seed, device):
    """A few of those in tests/nn/test_starts.py: whole networks, whose small sizes leave most of a block empty."""
    with torch.device(device):
        check_offsets(seed)
        check_starts(seed)


def launches(H: int) -> list:
    """The widest by default, all of them, of both types, in full."""
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        *others, widest = interpreted().configurations(H, dtype.itemsize)
        found += [pytest.param(launch, dtype, marks=pytest.mark.full) for launch in others]
        found.append(pytest.param(widest, dtype, marks=pytest.mark.full if dtype is torch.bfloat16 else ()))
    return found


@pytest.mark.parametrize(("launch", "dtype"), launches(250), ids=str)
def test_each_launch_configuration_alone(launch, dtype, device, worst_cell, monkeypatch):
    module = interpreted() if device == "cpu" else backends.gpu_kernels()[0]
    monkeypatch.setattr(module, "choose", lambda B, H, itemsize: launch)
    for function in ("fused", "linear"):
        check(Case(function, T=2, B=2, H=250, state=True, zoneout=0.3), dtype, device, worst_cell)


def test_the_launch_is_wide_only_where_programs_abound_and_lanes_are_busy():
    choose = interpreted().choose
    assert choose(B=256, H=1024, itemsize=4) == (256, 8)
    assert choose(B=256, H=1024, itemsize=2) == (256, 4)
    assert choose(B=1, H=1024, itemsize=4) == (32, 1)
    assert choose(B=64, H=320, itemsize=4) == (64, 2)
    assert choose(B=64, H=320, itemsize=2) == (64, 1)
    assert choose(B=9999, H=5, itemsize=8) == (32, 1)
    for B, H, itemsize in ((B, H, size) for B in (1, 20, 300) for H in range(1, 700, 37) for size in (2, 4, 8)):
        assert choose(B, H, itemsize) in interpreted().configurations(H, itemsize)


@pytest.mark.parametrize(
    ("seed", "reverse"),
    [
        (-(2**63), True),
        pytest.param(0x123456789ABCDEF, False, marks=pytest.mark.full),
        pytest.param(0, False, marks=pytest.mark.full),
        pytest.param(-1, True, marks=pytest.mark.full),
    ],
)
def test_zoneout_zones_the_same_channels_as_everywhere(seed, reverse, device):
    T, B, H = 3, 2, 37
    gates, lengths, key = torch.randn(T, B, 4 * H), torch.tensor([3, 2]), torch.tensor(seed)
    zero = torch.tensor(0)
    word = int(philox((zero, zero, zero, zero), (key & MASK, (key >> 32) & MASK))[0])
    # Everything, nothing, and the first channel only just.
    for probability in (0.3, 1.0, 2**-34, word / 2**32, (word + 1) / 2**32):
        arguments = [x.to(device) for x in (gates, lengths, key)]
        arguments = [arguments[0], None, None, arguments[1], None, arguments[2]]
        _, _, _, activated = torch.ops.quasirnn.pool(*arguments, probability, 4, reverse, True)
        _, f, _, i = activated.cpu().chunk(4, dim=-1)
        here = (torch.arange(T)[:, None] < lengths)[:, :, None]
        zoned = zoned_channels(key, (T, B, H), probability) & here
        assert torch.equal(f == 1, zoned)
        assert torch.equal(i == 0, zoned | ~here)


def test_nonlinearities_are_good_to_a_few_ulp_from_nothing_to_overflow(device):
    sizes = torch.cat([torch.logspace(-38, 0, 200), torch.linspace(0, 20, 200), torch.logspace(1.3, 38, 50)])
    for dtype in (torch.float32, torch.float64):
        x = torch.cat([sizes, -sizes]).to(dtype)
        gates = torch.cat([x, x]).view(1, 1, -1).to(device)
        _, _, _, activated = torch.ops.quasirnn.pool(gates, *[None] * 5, 0.0, 2, False, True)
        z, f = activated.cpu().flatten().split(len(x))
        true = x.double().tanh()
        eps = torch.finfo(dtype).eps
        assert ((z.double() - true).abs() <= 3 * eps * true.abs()).all()
        true = x.double().sigmoid()
        assert ((f.double() - true).abs() <= 3 * eps * true + torch.finfo(dtype).tiny).all()


def test_long_sums_for_the_bias_lose_nothing(device):
    # z = f = 0: the gradient of z's pre-activation is grad_h itself. Read backwards, 1 comes first.
    T = 65
    grad_h = torch.full((T, 1, 1), 2.0**-25)
    grad_h[-1] = 1
    kept, c = torch.zeros(T, 1, 2), torch.zeros(T, 1, 1)
    there = [x.to(device) for x in (grad_h, kept, c)]
    _, grad_bias, _ = torch.ops.quasirnn.pool_backward(
        there[0], None, None, None, *there[1:], None, None, None, 0.0, 2, False, 1
    )
    assert grad_bias[0, 0].item() == 1 + 64 * 2.0**-25


def test_a_bad_number_stays_bad(device):
    h, last = fused_pool(torch.tensor([float("nan"), 1.0, 1.0]).view(1, 1, 3).to(device))
    assert h.isnan().all()
    assert last.isnan().all()


@pytest.mark.parametrize("reverse", SWITCH)
@pytest.mark.parametrize(("function", "pooling"), [("fused", p) for p in POOLINGS] + [("gated", "f"), ("gated", "ifo")])
def test_guarantee_padding_cannot_leak_triton(function, pooling, reverse, device):
    case = Case(function, T=4, B=3, H=5, pooling=pooling, reverse=reverse, lengths=True, state=True)
    padding = (torch.arange(case.T)[:, None] >= case.row_lengths())[:, :, None]
    assert padding.any()

    def filled(number: float) -> dict[str, Tensor]:
        tensors = inputs(case, torch.float32)
        tensors = {name: x.masked_fill(padding, number) if x.dim() == 3 else x for name, x in tensors.items()}
        leaves = {name: x.to(device).requires_grad_() for name, x in tensors.items()}
        h, c_last = public(case, leaves).values()
        sent = (torch.ones(h.shape).masked_fill(padding, number).to(device), torch.ones_like(c_last))
        gradients = dict(zip(leaves, torch.autograd.grad((h, c_last), list(leaves.values()), sent), strict=True))
        return {name: x.detach().cpu() for name, x in {"h": h, "c_last": c_last, **gradients}.items()}

    with_zeros, with_nan = filled(0.0), filled(float("nan"))
    for name, value in with_nan.items():
        assert torch.equal(value, with_zeros[name]), name
        assert value.dim() < 3 or (value.masked_select(padding) == 0).all(), name


def test_the_backward_reads_no_padding_of_what_was_kept(device):
    T, B, H = 3, 2, 5
    kept, c, lengths = torch.rand(T, B, 3 * H), torch.randn(T, B, H), torch.tensor([3, 1])
    padding = (torch.arange(T)[:, None] >= lengths)[:, :, None]
    found = []
    for number in (0.0, float("nan")):
        there = [x.masked_fill(padding, number).to(device) for x in (c, kept, c)]
        found.append(
            torch.ops.quasirnn.pool_backward(
                there[0], None, None, None, *there[1:], None, lengths.to(device), None, 0.0, 3, False, B
            )
        )
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("function", ["fused", "gated"])
@pytest.mark.parametrize("used", ["h", "c_last"])
def test_gradients_that_nobody_sent(function, used, device):
    case = Case(function, T=3, B=2, H=5, pooling="f", state=True)

    def gradients(run: Run, dtype: torch.dtype) -> list[Tensor]:
        leaves = [x.to(dtype).requires_grad_() for x in inputs(case, torch.float32).values()]
        outputs = run(case, dict(zip(inputs(case, dtype), leaves, strict=True)))
        return torch.autograd.grad(outputs[used].sum(), leaves)

    for mine, true in zip(gradients(on(device), torch.float32), gradients(exact, torch.float64), strict=True):
        torch.testing.assert_close(mine.double(), true, rtol=0, atol=1e-6)


def test_a_length_out_of_range_stays_in_its_row(device):
    """The public functions refuse it; in a compiled program nobody looks."""
    gates, c0 = torch.randn(3, 3, 6).to(device), torch.randn(3, 2).to(device)

    def run(*lengths: int) -> tuple[Tensor, ...]:
        there = torch.tensor(lengths).to(device)
        return torch.ops.quasirnn.pool(gates, None, c0, there, None, None, 0.0, 3, False, False)

    for wrong, right in zip(run(99, -5, 2), run(3, 0, 2), strict=True):
        assert torch.equal(wrong, right)
    assert torch.equal(run(3, 0, 2)[1][1], c0[1])


@pytest.mark.parametrize(
    ("index", "wrong"),
    [
        (0, torch.zeros(1, 6, 2).transpose(1, 2)),
        (1, torch.zeros(2)),
        (1, torch.zeros(6, dtype=torch.float64)),
        (2, torch.zeros(2, 3)),
        (3, torch.zeros(2, dtype=torch.int32)),
        (4, torch.zeros(1, 2)),
        (5, torch.zeros(1)),
    ],
    ids=["strides", "bias", "bias type", "c0", "lengths", "starts", "seed"],
)
def test_kernels_refuse_what_does_not_fit(index, wrong):
    arguments = [torch.zeros(1, 2, 6), None, None, None, None, torch.tensor(1), 0.5, 3, False, True]
    interpreted().pool(*arguments)
    arguments[index] = wrong
    with pytest.raises(ValueError, match="must be contiguous"):
        interpreted().pool(*arguments)


# Compiles through the launchers themselves, for a card that a stand-in driver claims is here. Starts nothing.
COMPILE = """
import json, sys, types
import torch, triton
from triton.backends.compiler import GPUTarget
from quasirnn.ops import triton_kernels as kernels

target = GPUTarget("cuda", 80, 32) if sys.argv[1] == "cuda" else GPUTarget("hip", "gfx942", 64)
triton.runtime.driver.set_active(types.SimpleNamespace(
    get_current_target=lambda: target, get_current_device=lambda: 0, get_current_stream=lambda device: 0,
))
compiled = []

class Compiling:
    def __init__(self, kernel):
        self.kernel = kernel
    def __getitem__(self, grid):
        return lambda *args, **options: compiled.append(self.kernel.warmup(*args, grid=grid, **options))

for name in ("_pool", "_pool_backward", "_recurrence", "_recurrence_backward"):
    setattr(kernels, name, Compiling(getattr(kernels, name)))

def compile(dtype, kinds, T=7, B=3, H=64, everything=True, reverse=False):
    def maybe(*shape, dtype=dtype):
        return torch.empty(shape, dtype=dtype) if everything else None
    W, state = kinds * H, kernels.state_type(dtype)
    gates, c, c0 = torch.empty(T, B, W, dtype=dtype), torch.empty(T, B, H, dtype=dtype), maybe(B, H, dtype=state)
    lengths, seed = maybe(B, dtype=torch.int64), maybe(dtype=torch.int64)
    starts = maybe(T, B, dtype=torch.bool)
    grads = (maybe(T, B, H), maybe(B, H, dtype=state), maybe(T, B, H), maybe(T, B, W))
    del compiled[:]
    kernels.pool(gates, maybe(W), c0, lengths, starts, seed, 0.3 * everything, kinds, reverse, everything)
    kernels.pool_backward(*grads, gates, c, c0, lengths, starts, 0.3 * everything, kinds, reverse, int(everything))
    kernels.recurrence(c, c, c0, lengths, starts, reverse)
    kernels.recurrence_backward(*grads[:2], c, c, c0, lengths, starts, reverse)
    return list(compiled)

first = compile(torch.float32, 3)
again = [compile(torch.float32, 3, T, B, H) for T, B, H in ((1, 1, 64), (16, 16, 48), (100, 5, 256))]
compile(torch.bfloat16, 4, reverse=True)
compile(torch.float64, 2, H=33, everything=False)
print(json.dumps({
    "code": [sorted(kernel.asm) for kernel in first],
    "compiled again": sum(old is not new for kernels in again for old, new in zip(first, kernels)),
    "loads ahead": ["cp.async" in kernel.asm.get("ptx", "") for kernel in first],
}))
"""


@pytest.mark.parametrize("card", ["cuda", pytest.param("hip", marks=pytest.mark.full)])
def test_kernels_compile_for_cards_and_once_for_all_lengths(card, tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    result = run_with_torch(COMPILE, card, env=environment | {"TRITON_CACHE_DIR": str(tmp_path)})
    assert result.returncode == 0, result.stderr[-4000:]
    found = json.loads(result.stdout)
    assert all({"cuda": "cubin", "hip": "hsaco"}[card] in kinds for kinds in found["code"])
    assert found["compiled again"] == 0
    if card == "cuda":
        # What a step reads is copied ahead of time, or every step would wait for memory.
        assert all(found["loads ahead"])


def test_the_import_registers_for_gpus():
    for name in OPERATORS:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"quasirnn::{name}", "CUDA")


@pytest.fixture
def a_gpu(monkeypatch):
    """torch says that there is one."""
    monkeypatch.delenv("QUASIRNN_BACKEND", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 0))
    monkeypatch.setattr("quasirnn.ops.triton_kernels.require_driver", lambda: None)
    backends.gpu_kernels.cache_clear()
    yield
    backends.gpu_kernels.cache_clear()


@pytest.mark.usefixtures("a_gpu")
def test_report_says_triton_or_why_not(monkeypatch):
    assert backends.report()["cuda"] == {"backend": "triton", "reason": None}

    def reason_with(change: Callable[[pytest.MonkeyPatch], None]) -> str:
        backends.gpu_kernels.cache_clear()
        with monkeypatch.context() as patch:
            change(patch)
            found = backends.report()["cuda"]
        assert found["backend"] == "plain"
        return found["reason"]

    def broken(*_: str) -> None:
        raise RuntimeError("Failed to find C compiler")

    assert reason_with(lambda patch: patch.setenv("QUASIRNN_BACKEND", "plain")) == "QUASIRNN_BACKEND=plain is set"
    assert "7.0" in reason_with(lambda patch: patch.setattr(torch.cuda, "get_device_capability", lambda n: (6, 1)))
    assert "not installed" in reason_with(lambda patch: patch.setattr(importlib.util, "find_spec", lambda name: None))
    driver = "quasirnn.ops.triton_kernels.require_driver"
    for where in ("importlib.import_module", driver):
        assert "C compiler" in reason_with(lambda patch, where=where: patch.setattr(where, broken))
