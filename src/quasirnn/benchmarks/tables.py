"""Results as tables of words; who prints them decides how they look."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from quasirnn.benchmarks.passes import MODES
from quasirnn.benchmarks.result import Cell, Figure, Result


@dataclass(frozen=True)
class Table:
    """The first column holds names, the others numbers."""

    title: str
    header: list[str]
    rows: list[list[str]]


def header(result: Result) -> list[str]:
    """What ran where and when; a warning if the machine had other work."""
    about = result.machine
    backend = {"kernels": f"compiled kernels, {about['backend_instruction_set']}", "plain": "plain PyTorch, no kernels"}
    place = [f"{about['cpu']}, {about['cores']} cores, {about['threads']} threads"]
    if about["gpu"]:
        place.insert(0, about["gpu"])
    source = f"quasirnn {about['quasirnn']}" + (f" at {about['commit']}" if about["commit"] else "")
    lines = [
        "; ".join(place),
        f"torch {about['torch']}; {source}; back end: {backend.get(about['backend'], about['backend'])}",
        f"{about['date']}; {about['command']}",
    ]
    if about["busy"]:
        used = [
            f"{about[key]:.1f} {word}"
            for key, word in (("others_before", "before the start"), ("others_during", "meanwhile"))
            if about[key] is not None
        ]
        lines.append(
            f"Warning: this machine is busy, others used {' and '.join(used)} of {about['cores']} cores: "
            "do not trust the speeds."
        )
    return lines


def tables(result: Result) -> list[Table]:
    """All tables of a result, the summary last."""
    return [*_MAKERS[result.benchmark](result), summary(result.summary)]


def summary(figures: Sequence[Figure]) -> Table:
    rows = []
    for figure in figures:
        verdict = "" if figure.met is None else "met" if figure.met else "not met"
        value = f"{figure.value:.1f} {figure.unit}" if figure.unit else f"{figure.value:.2f}"
        rows.append([figure.what, value, f"bar {figure.bar}" if figure.bar else "", verdict])
    return Table("Summary", ["", "", "", ""], rows)


def pivot(cells: Sequence[Cell], row: str, column: str) -> tuple[list[Any], list[Any], list[list[float]]]:
    """Ratios as a matrix: the values of `row` down, those of `column` across, in the order they come; NaN for none."""
    rows = list(dict.fromkeys(cell[row] for cell in cells))
    columns = list(dict.fromkeys(cell[column] for cell in cells))
    ratios = {(cell[row], cell[column]): cell["ratio"] for cell in cells}
    return rows, columns, [[ratios.get((r, c), float("nan")) for c in columns] for r in rows]


def _grid(title: str, corner: str, cells: Sequence[Cell], row: str, column: str, suffix: str = "") -> Table:
    rows, columns, ratios = pivot(cells, row, column)
    body = [[str(name), *(f"{ratio:.2f}{suffix}" for ratio in line)] for name, line in zip(rows, ratios, strict=True)]
    return Table(title, [corner, *map(str, columns)], body)


def _layer(result: Result) -> list[Table]:
    H = result.cells[0]["H"]
    found = []
    for mode in MODES:
        cells = [cell for cell in result.cells if cell["mode"] == mode]
        title = f"nn.LSTM / QRNN, {mode}: one layer of {H} units, how many times as fast"
        found.append(_grid(title, "batch \\ length", cells, "B", "T", "x"))
    return found


def _floor(result: Result) -> list[Table]:
    found = []
    for mode, floor in zip(MODES, ("the bare GEMM", "its three bare GEMMs"), strict=True):
        cells = [cell for cell in result.cells if cell["block"] == "grid" and cell["mode"] == mode]
        title = f"QRNN / {floor}, {mode}: fo, width 2, {cells[0]['H']} units; 1 is the floor"
        found.append(_grid(title, "batch \\ length", cells, "B", "T"))
    others = [cell for cell in result.cells if cell["block"] == "variants"]
    for pooling in dict.fromkeys(cell["pooling"] for cell in others):
        cells = [cell for cell in others if cell["pooling"] == pooling]
        title = f"QRNN / the bare GEMM, inference: {pooling}, batch {cells[0]['B']}, length {cells[0]['T']}"
        found.append(_grid(title, "units \\ width", cells, "H", "k"))
    return found


def _step(result: Result) -> list[Table]:
    rows = []
    for cell in result.cells:
        for name, seconds in cell["seconds"].items():
            numbers = [f"{seconds[key] * 1e6:.1f}" for key in ("median", "best", "p99")]
            model = f"{cell['H']} units, {cell['layers']} layer{'s' * (cell['layers'] > 1)}"
            rows.append([model if name == "QRNN" else "", name, *numbers])
    title = "One step at batch 1, state passed back, us (product: the bare matrix-vector one)"
    return [Table(title, ["", "", "median", "best", "p99"], rows)]


def _scale(result: Result) -> list[Table]:
    rows = [
        [
            f"{cell['T']:,}",
            f"{cell['seconds_per_token'] * 1e6:.3f}",
            f"{cell['seconds']['QRNN']['median'] / cell['T'] * 1e6:.3f}",
            f"{(cell['input_bytes'] + cell['output_bytes']) / 1e6:,.1f}",
            f"{cell['extra_bytes'] / 1e6:,.1f}",
        ]
        for cell in result.cells
    ]
    title = f"Inference, batch 1, {result.cells[0]['H']} units. Memory: {result.cells[0]['memory_method']}"
    columns = ["length", "us per token,\nbest", "\nmedian", "input and\noutput, MB", "extra\nmemory, MB"]
    return [Table(title, columns, rows)]


def _train_step(result: Result) -> list[Table]:
    parts = list(result.cells[0]["parts"])
    rows = []
    for cell in result.cells:
        total = sum(cell["parts"].values())
        shares = [f"{cell['parts'][part] * 1e3:.0f} ({100 * cell['parts'][part] / total:.0f} %)" for part in parts]
        rows.append([cell["model"], *shares, f"{total * 1e3:.0f}"])
    s = result.settings
    title = (
        f"One training batch ({s['B']} x {s['T']}, random words out of {s['vocabulary']:,}), {s['layers']} layers of "
        f"{s['H']} units; ms and share of the fastest"
    )
    return [Table(title, ["", *(part.replace(" ", "\n") for part in parts), "in all"], rows)]


def _task(result: Result) -> list[Table]:
    qrnn, lstm = result.cells
    rows = []

    def add(name: str, of: Callable[[Cell], float], form: str = ",.0f", scale: float = 1.0) -> None:
        numbers = [of(cell) for cell in (qrnn, lstm)]
        words = [f"{number * scale:{form}}" for number in numbers]
        rows.append([name, *words, f"{numbers[1] / numbers[0]:.2f}" if numbers[0] else ""])

    s = result.settings
    unit = s["unit"]
    add("parameters", lambda cell: cell["parameters"])
    add("multiply-adds in a time step: recurrent part", lambda cell: cell["multiply_adds"]["recurrent"])
    add("multiply-adds in a time step: whole model", lambda cell: cell["multiply_adds"]["whole"])
    for key, word in (("median", "median step"), ("best", "best step"), ("all", "all steps together")):
        add(f"{unit}/s: {word}", lambda cell, key=key: cell["items_per_second"][key])
    for part in qrnn["parts"]:
        add(f"ms a step: {part}, median", lambda cell, part=part: cell["parts"][part], ",.1f", 1e3)
    add("ms a step: drawing the batch, not counted", lambda cell: cell["draw_seconds"], ",.2f", 1e3)
    add("MB at the peak: what training takes", lambda cell: cell["memory"]["training_bytes"], ",.0f", 1e-6)
    add("MB at the peak: the whole process", lambda cell: cell["memory"]["process_bytes"], ",.0f", 1e-6)
    items = statistics.median(qrnn["steps"]["items"])
    differ = ", ".join(f"{key} {_word(ours)}/{_word(theirs)}" for key, (ours, theirs) in s["differences"].items())
    title = (
        f"Training {s['task']} (preset {s['preset']}, {s['corpus'].get('name', 'data')}): {s['steps']} steps each in "
        f"turns on the same batches, {items:,.0f} {unit} a step.\n"
        f"The two differ in {differ}.\n"
        "Multiply-adds: the size of every weight matrix but embeddings, and a translator's first QRNN layers, whose\n"
        "products are looked up, forward; with gradients three times as many.\n"
        f"Memory: of {s['memory_steps']} steps in a process of its own ({qrnn['memory']['method']})."
    )
    return [Table(title, ["", "QRNN", "nn.LSTM", "LSTM / QRNN"], rows)]


def _word(value: Any) -> str:
    return "-" if value is None else str(value).lower()


def _softmax(result: Result) -> list[Table]:
    s = result.settings
    rows = []
    for cell in result.cells:
        (seconds,) = cell["seconds"].values()
        extra = cell.get("extra_bytes")
        rows.append(
            [
                cell["way"] + (" (default)" if cell["default"] else ""),
                f"{cell['rows_at_once']:,}",
                f"{seconds['best'] * 1e3:,.1f}",
                f"{seconds['median'] * 1e3:,.1f}",
                f"{cell['ratio']:.2f}",
                "" if extra is None else f"{extra / 1e6:,.1f}",
            ]
        )
    method = result.cells[0]["memory_method"]
    title = (
        f"The loss over {s['vocabulary']:,} words with its gradients, {s['rows']:,} rows of {s['hidden']}, "
        f"{s['precision']}.\nMemory: beyond inputs and gradients ({method})"
    )
    columns = ["", "rows\nat once", "ms,\nbest", "\nmedian", "best / bare\nproducts", "extra\nmemory, MB"]
    return [Table(title, columns, rows)]


def _decoding(result: Result) -> list[Table]:
    s = result.settings
    rows = []
    for cell in result.cells:
        speeds = [f"{cell['characters_per_second'][name]:,.0f}" for name in cell["seconds"]]
        times = [f"{seconds['best'] / cell['T'] * 1e3:,.2f}" for seconds in cell["seconds"].values()]
        rows.append([f"{cell['B']} x {cell['T']}", *speeds, f"{cell['ratio']:.2f}", *times])
    names = list(result.cells[0]["seconds"])
    title = (
        f"Beam search, beam {s['beam']}: {s['layers']} + {s['layers']} layers of {s['H']} units, {s['vocabulary']} "
        "characters; every translation as long as its source, random weights"
    )
    columns = [f"{name}\ncharacters/s" for name in names] + ["QRNN / LSTM\nspeed"] + [f"{n}\nms a step" for n in names]
    return [Table(title, ["sentences\nx characters", *columns], rows)]


_MAKERS: dict[str, Callable[[Result], list[Table]]] = {
    "layer": _layer,
    "floor": _floor,
    "step": _step,
    "scale": _scale,
    "train-step": _train_step,
    "task": _task,
    "softmax": _softmax,
    "decoding": _decoding,
}
