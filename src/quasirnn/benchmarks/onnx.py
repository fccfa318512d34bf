"""onnxruntime with the file of a QRNN layer against onnxruntime with the file of an `nn.LSTM` with equally many units.

The LSTM's file has the nodes that `torch.onnx.export` writes for `nn.LSTM`: the operator LSTM, and a Squeeze.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from quasirnn import QRNN
from quasirnn.benchmarks.correctness import WrongNumbers, require_correct
from quasirnn.benchmarks.passes import time_passes
from quasirnn.benchmarks.result import (
    Cell,
    Figure,
    Progress,
    Result,
    Setting,
    geometric_mean,
    measure_each,
    run_benchmark,
    silent,
)
from quasirnn.benchmarks.tables import Table, grid_table, pivot
from quasirnn.benchmarks.timing import Budget
from quasirnn.errors import MissingPackageError, UserError
from quasirnn.export.onnx import layer_graph
from quasirnn.export.onnx_graph import Graph
from quasirnn.export.onnx_lstm import layer as lstm_layer
from quasirnn.plots.heatmap import Grid, ratio_grids


@dataclass(frozen=True)
class Plan:
    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    H: int
    budget: Budget  # for each cell


FULL = Plan((1, 8, 32), (32, 128, 512), 320, Budget(seconds=2.0))
QUICK = Plan((1, 32), (32, 512), 320, Budget(seconds=1.0, most_seconds=3.0))


@dataclass(frozen=True)
class Case:
    B: int
    T: int
    H: int

    def __str__(self) -> str:
        return f"batch {self.B}, length {self.T}"


def run(plan: Plan, setting: Setting, progress: Progress = silent) -> Result:
    if setting.device != "cpu":
        raise UserError("bench onnx: CPU only.")
    torch.manual_seed(setting.seed)
    rnn, lstm = QRNN(plan.H, plan.H).eval(), nn.LSTM(plan.H, plan.H).eval()
    sessions = {"QRNN": _session(layer_graph(rnn)), "nn.LSTM": _session(lstm_graph(lstm))}
    checked = {name: _check(name, layer, sessions[name]) for name, layer in (("QRNN", rnn), ("nn.LSTM", lstm))}
    cases = [Case(B, T, plan.H) for B in plan.batches for T in plan.lengths]

    def measure() -> list[Cell]:
        return measure_each(cases, lambda case: _time_case(case, sessions, plan.budget, setting), progress)

    return run_benchmark(
        "onnx", asdict(plan), setting, measure, summarise, lambda device: {**require_correct(device), "onnx": checked}
    )


def lstm_graph(lstm: nn.LSTM) -> Graph:
    """One layer and direction of an `nn.LSTM`."""
    D, H = lstm.input_size, lstm.hidden_size
    graph = Graph("lstm")
    x = graph.input("input", "float32", ["T", "B", D])
    state = [graph.input(name, "float32", [1, "B", H]) for name in ("h_0", "c_0")]
    output, h_n, c_n = lstm_layer(graph, lstm.all_weights[0], x, (state[0], state[1]))
    graph.output("output", output, "float32", ["T", "B", H])
    graph.output("h_n", h_n, "float32", [1, "B", H])
    graph.output("c_n", c_n, "float32", [1, "B", H])
    return graph


def _session(graph: Graph) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise MissingPackageError("this needs onnxruntime: pip install 'quasirnn[onnx]'") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(graph.to_bytes(), options, providers=["CPUExecutionProvider"])


def _inputs(session: Any, T: int, B: int) -> dict[str, np.ndarray[Any, Any]]:
    """Random input and states of zero."""
    sizes = {"T": T, "B": B}
    arrays = {}
    for each in session.get_inputs():
        shape = [sizes.get(size, size) for size in each.shape]
        arrays[each.name] = torch.randn(shape).numpy() if each.name == "input" else np.zeros(shape, np.float32)
    return arrays


def _check(name: str, layer: nn.Module, session: Any) -> float:
    """The largest difference from the layer itself, in float64."""
    arrays = _inputs(session, 40, 3)
    expected = layer.double()(torch.from_numpy(arrays["input"]).double())[0].detach()
    error = float((torch.from_numpy(session.run(["output"], arrays)[0]) - expected).abs().max())
    if not error < 1e-5:
        raise WrongNumbers(f"wrong results in onnxruntime, so nothing is timed: {name} has an error of {error:.2g}")
    return error


def _time_case(case: Case, sessions: dict[str, Any], budget: Budget, setting: Setting) -> Cell:
    def one(session: Any) -> Any:
        arrays = _inputs(session, case.T, case.B)
        return lambda: session.run(None, arrays)

    samples = time_passes({name: one(session) for name, session in sessions.items()}, budget, setting)
    return {
        **asdict(case),
        "seconds": {name: each.summary() for name, each in samples.items()},
        "ratio": samples["nn.LSTM"].best / samples["QRNN"].best,
    }


def summarise(cells: list[Cell]) -> list[Figure]:
    worst = min(cells, key=lambda cell: cell["ratio"])
    place = f"batch {worst['B']} x length {worst['T']}"
    return [
        Figure("nn.LSTM / QRNN under onnxruntime: geometric mean", geometric_mean(cell["ratio"] for cell in cells)),
        Figure(f"nn.LSTM / QRNN under onnxruntime: worst cell ({place})", worst["ratio"]),
    ]


def _title(result: Result) -> str:
    return f"nn.LSTM / QRNN under onnxruntime: time ratio for one layer of {result.settings['H']} units"


def tables(result: Result) -> list[Table]:
    return [grid_table(_title(result), "batch \\ length", result.cells, "B", "T", lambda cell: cell["ratio"])]


def draw(result: Result, path: Path) -> None:
    B, T, ratios = pivot(result.cells, "B", "T", lambda cell: cell["ratio"])
    grid = Grid("inference", np.array(ratios), [*map(str, B)], [*map(str, T)], "batch size", "length")
    ratio_grids(
        path,
        [[grid]],
        title=f"{_title(result)}; above 1 the QRNN is faster",
        footnote=result.footnote,
        high_is_good=True,
        limits=(1.0, 8.0),
    )
