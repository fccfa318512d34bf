"""Results as pictures: picks the arrays out, `plots` draws them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from quasirnn.benchmarks import softmax
from quasirnn.benchmarks.passes import MODES
from quasirnn.benchmarks.result import Cell, Result
from quasirnn.benchmarks.tables import pivot
from quasirnn.plots.bars import grouped_bars, stacked_bars
from quasirnn.plots.heatmap import Grid, ratio_grids
from quasirnn.plots.lines import Line, lines_over


def draw(result: Result, path: Path) -> None:
    """Draw a result into a .png or .svg file."""
    _DRAWERS[result.benchmark](result, path)


def _footnote(result: Result) -> str:
    about = result.machine
    place = about["gpu"] or f"{about['cpu']}, {about['threads']} threads"
    return f"{place}, torch {about['torch']}, {about['date'][:10]}"


def _grid(title: str, cells: Sequence[Cell], row: str, column: str, names: tuple[str, str]) -> Grid:
    rows, columns, ratios = pivot(cells, row, column)
    return Grid(title, np.array(ratios), [*map(str, rows)], [*map(str, columns)], *names)


def _layer(result: Result, path: Path) -> None:
    names = ("Batch size", "Sequence length")
    grids = [_grid(mode, [c for c in result.cells if c["mode"] == mode], "B", "T", names) for mode in MODES]
    ratio_grids(
        path,
        [grids],
        title=f"Speed of a {result.cells[0]['H']}-unit QRNN layer over nn.LSTM",
        footnote=_footnote(result),
        suffix="x",
        high_is_good=True,
        limits=(1.0, 8.0),
    )


def _floor(result: Result, path: Path) -> None:
    names = ("Batch size", "Sequence length")
    blocks = [[c for c in result.cells if c["block"] == "grid" and c["mode"] == mode] for mode in MODES]
    H = blocks[0][0]["H"]
    titles = [f"inference / GEMM, {H} units", f"training / 3 GEMMs, {H} units"]
    rows = [[_grid(title, cells, "B", "T", names) for title, cells in zip(titles, blocks, strict=True)]]
    others = [cell for cell in result.cells if cell["block"] == "variants"]
    if others:
        rows.append([])
    for pooling in dict.fromkeys(cell["pooling"] for cell in others):
        cells = [cell for cell in others if cell["pooling"] == pooling]
        title = f"{pooling}, inference, batch {cells[0]['B']}, length {cells[0]['T']}"
        rows[1].append(_grid(title, cells, "H", "k", ("Units", "Width")))
    ratio_grids(
        path,
        rows,
        title="Time of a QRNN layer over its bare multiplications (1 is the floor)",
        footnote=_footnote(result),
        high_is_good=False,
        limits=(1.0, 1.6),
    )


def _step(result: Result, path: Path) -> None:
    names = list(result.cells[0]["seconds"])
    words = {"product": "bare product"}

    def of(key: str) -> dict[str, list[float]]:
        return {words.get(n, n): [cell["seconds"][n][key] * 1e6 for cell in result.cells] for n in names}

    grouped_bars(
        path,
        [f"{cell['H']} units\n{cell['layers']} layer{'s' * (cell['layers'] > 1)}" for cell in result.cells],
        of("median"),
        floor=10.0,
        tails=of("p99"),
        tails_name="99th percentile",
        title="One step at batch 1, median",
        unit="us (logarithmic)",
        footnote=_footnote(result),
    )


def _scale(result: Result, path: Path) -> None:
    per_token = [cell["seconds_per_token"] * 1e6 for cell in result.cells]
    lines = [
        Line("time per token", per_token, "us", 1.15 * min(per_token), "1.15 x the fastest"),
        Line("extra memory", [cell["extra_bytes"] / 1e6 for cell in result.cells], "MB", 16.0, "16 MB"),
    ]
    lines_over(
        path,
        [cell["T"] for cell in result.cells],
        lines,
        title=f"Inference over long sequences, batch 1, {result.cells[0]['H']} units",
        x_name="Sequence length",
        footnote=_footnote(result),
    )


def _train_step(result: Result, path: Path) -> None:
    s = result.settings
    stacked_bars(
        path,
        [cell["model"] for cell in result.cells],
        {part: [cell["parts"][part] * 1e3 for cell in result.cells] for part in result.cells[0]["parts"]},
        title=f"One training batch, {s['layers']}-layer {s['H']}-unit language model, {s['B']} x {s['T']}",
        unit="ms per batch",
        footnote=_footnote(result),
    )


def _task(result: Result, path: Path) -> None:
    s = result.settings
    stacked_bars(
        path,
        [cell["model"] for cell in result.cells],
        {part: [cell["parts"][part] * 1e3 for cell in result.cells] for part in result.cells[0]["parts"]},
        title=f"One training step, {s['task']}, preset {s['preset']}",
        unit="ms per step, median",
        footnote=_footnote(result),
    )


def _softmax(result: Result, path: Path) -> None:
    s = result.settings
    plain = next(cell for cell in result.cells if cell["way"] == softmax.PLAIN)
    chunked = [cell for cell in result.cells if cell["numbers"] is not None]
    lines = [
        Line("time over the bare products", [c["ratio"] for c in chunked], "", plain["ratio"], "F.cross_entropy"),
        Line(
            "extra memory",
            [cell["extra_bytes"] / 1e6 for cell in chunked],
            "MB",
            plain["extra_bytes"] / 1e6,
            "F.cross_entropy",
        ),
    ]
    lines_over(
        path,
        [cell["numbers"] / 1e6 for cell in chunked],
        lines,
        title=f"Loss over {s['vocabulary']:,} words in chunks, {s['rows']:,} rows of {s['hidden']}, {s['precision']}",
        x_name="Logits at once, millions",
        footnote=_footnote(result),
    )


def _decoding(result: Result, path: Path) -> None:
    s = result.settings
    cells = [cell for cell in result.cells if cell["T"] == s["length"]]
    lines_over(
        path,
        [cell["B"] for cell in cells],
        [
            Line(name, [cell["characters_per_second"][name] for cell in cells], "characters a second")
            for name in cells[0]["seconds"]
        ],
        title=f"Beam search, beam {s['beam']}, {s['length']} characters a sentence",
        x_name="Sentences side by side",
        footnote=_footnote(result),
    )


_DRAWERS: dict[str, Callable[[Result, Path], None]] = {
    "layer": _layer,
    "floor": _floor,
    "step": _step,
    "scale": _scale,
    "train-step": _train_step,
    "task": _task,
    "softmax": _softmax,
    "decoding": _decoding,
}
