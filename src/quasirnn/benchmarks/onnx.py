"""onnxruntime with the file of a QRNN layer against onnxruntime with the file of an `nn.LSTM` with equally many units.

The LSTM's file has the nodes that `torch.onnx.export` writes for `nn.LSTM`: the operator LSTM, and a Squeeze.
"""

from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from quasirnn import QRNN
from quasirnn.benchmarks.correctness import WrongNumbers, require_correct
from quasirnn.benchmarks.layer import Plan, draw_layers, layer_tables
from quasirnn.benchmarks.passes import Case, time_passes, timed_cell
from quasirnn.benchmarks.result import Cell, Figure, Progress, Result, Setting, mean_and_worst, run_cases, silent
from quasirnn.benchmarks.tables import Table, ratio_grid
from quasirnn.benchmarks.timing import Budget
from quasirnn.errors import MissingPackageError, UserError
from quasirnn.export.onnx import layer_graph
from quasirnn.export.onnx_graph import Graph
from quasirnn.export.onnx_lstm import layer as lstm_layer
from quasirnn.plots.heatmap import Grid

WHAT = "nn.LSTM / QRNN under onnxruntime"
FULL = Plan((1, 8, 32), (32, 128, 512), 320, Budget(seconds=2.0))
QUICK = Plan((1, 32), (32, 512), 320, Budget(seconds=1.0, most_seconds=3.0))


def run(plan: Plan, setting: Setting, progress: Progress = silent) -> Result:
    if setting.device != "cpu":
        raise UserError("bench onnx: CPU only.")
    torch.manual_seed(setting.seed)
    rnn, lstm = QRNN(plan.H, plan.H).eval(), nn.LSTM(plan.H, plan.H).eval()
    sessions = {"QRNN": _session(layer_graph(rnn)), "nn.LSTM": _session(lstm_graph(lstm))}
    checked = {name: _check(name, layer, sessions[name]) for name, layer in (("QRNN", rnn), ("nn.LSTM", lstm))}
    cases = [Case(B, T, plan.H) for B in plan.batches for T in plan.lengths]

    def time(case: Case) -> Cell:
        return _time_case(case, sessions, plan.budget, setting)

    def check(device: str) -> dict[str, Any]:
        return {**require_correct(device), "onnx": checked}

    return run_cases("onnx", asdict(plan), setting, cases, time, summarise, progress, check)


def lstm_graph(lstm: nn.LSTM) -> Graph:
    """One layer and direction of an `nn.LSTM`."""
    D, H = lstm.input_size, lstm.hidden_size
    graph = Graph("lstm")
    x = graph.input("input", "float32", ["T", "B", D])
    state = [graph.input(name, "float32", [1, "B", H]) for name in ("h_0", "c_0")]
    output, h_n, c_n = lstm_layer(graph, lstm.all_weights[0], x, (state[0], state[1]))
    graph.output("output", output, "float32", ["T", "B", H])
    for name, last in (("h_n", h_n), ("c_n", c_n)):
        graph.output(name, last, "float32", [1, "B", H])
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
    return timed_cell(case, samples, ratio=samples["nn.LSTM"].best / samples["QRNN"].best)


def summarise(cells: list[Cell]) -> list[Figure]:
    return mean_and_worst(WHAT, cells, itemgetter("ratio"))


def _grid(result: Result) -> Grid:
    return ratio_grid(WHAT, result.cells, itemgetter("ratio"))


def tables(result: Result) -> list[Table]:
    return layer_tables(result, [_grid(result)])


def draw(result: Result, path: Path) -> None:
    draw_layers(result, [_grid(result)], path)
