"""The command line in this process, and what a run folder holds: all that the golden tests know of the package."""

import contextlib
import hashlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file

from quasirnn.cli.main import main

HERE = Path(__file__).parent
RUNS = HERE / "runs"
VALUES = HERE / "values.json"
WEIGHTS = HERE / "weights"
# Of weights after a training on another machine or back end.
ROUNDING = 1e-3


def quasirnn(*words: str, fsync: Callable[[int], None] = lambda descriptor: None) -> str:
    """Run `quasirnn WORDS`; what it prints. Nothing is synced to the disk, and no curves are drawn: they cost more than
    the training itself."""
    printed, told = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["quasirnn", *words]),
        mock.patch.object(os, "fsync", fsync),
        without_matplotlib(),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(told),
        pytest.raises(SystemExit) as end,
    ):
        main()
    assert not end.value.code, f"quasirnn {' '.join(words)}: {told.getvalue()}"
    return printed.getvalue()


@contextlib.contextmanager
def without_matplotlib() -> Iterator[None]:
    """As if it were not installed. Only its own entry is put back: what else is imported meanwhile must stay."""
    there = sys.modules.get("matplotlib")
    sys.modules["matplotlib"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["matplotlib"]
        if there is not None:
            sys.modules["matplotlib"] = there


def answer(*words: str) -> Any:
    """What a command prints: JSON if it was asked for; otherwise lines, or rows where there are tabs."""
    printed = quasirnn(*words)
    if "--json" in words:
        return json.loads(printed)
    return [line.split("\t") if "\t" in line else line for line in printed.splitlines()]


def evaluated(run: Path, words: list[str]) -> dict[str, Any]:
    """`quasirnn evaluate RUN --json WORDS`, without the run's place and sacrebleu's version; of notes their number."""
    values = answer("evaluate", str(run), "--json", *words)
    del values["run"]
    if "signatures" in values:
        values["signatures"] = {name: re.sub(r"\|version:.*", "", text) for name, text in values["signatures"].items()}
    return values | {"notes": len(values["notes"])}


def asked(run: Path, words: list[str]) -> Any:
    """Another command, with RUN among its words."""
    return answer(*(str(run) if word == "RUN" else word for word in words))


def described(run: Path) -> dict[str, Any]:
    """Of a run folder: what was read, and how it was numbered."""
    training = json.loads((run / "training.json").read_text())
    return {
        "preset": training["preset"],
        "corpus": training["corpus"],
        "config": json.loads((run / "config.json").read_text()),
        "vocabulary": hashlib.sha256((run / "vocabulary.json").read_bytes()).hexdigest(),
    }


def machine(run: Path) -> dict[str, Any]:
    """What the last bits of a training depend on besides the sources."""
    environment = json.loads((run / "environment.json").read_text())
    told = {name: environment[name] for name in ("torch", "backend", "instruction_set", "cpu", "threads")}
    return told | {"capability": torch.backends.cpu.get_cpu_capability()}


def metrics(run: Path) -> list[dict[str, Any]]:
    """What happened in a run, without times, and as if it had not been stopped."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = [record for record in records if record["event"] in ("train", "valid")]
    return [{name: value for name, value in record.items() if not re.search("minutes|second", name)} for record in kept]


def last_checkpoint(run: Path) -> Path:
    return max((run / "checkpoint").glob("step-*"))


def tensors(run: Path) -> dict[str, torch.Tensor]:
    """The best weights, and all tensors of the last checkpoint: weights, optimizer, random state."""
    files = {"best": run / "model.safetensors"}
    files |= {file.stem: file for file in last_checkpoint(run).glob("*.safetensors")}
    return {f"{kind}/{name}": tensor for kind, file in files.items() for name, tensor in load_file(file).items()}


def hashes(run: Path) -> dict[str, str]:
    return {name: sha256(tensor) for name, tensor in sorted(tensors(run).items())}


def sha256(tensor: torch.Tensor) -> str:
    head = f"{tensor.dtype} {list(tensor.shape)} ".encode()
    return hashlib.sha256(head + tensor.contiguous().numpy().tobytes()).hexdigest()


def assert_same(got: Any, expected: Any, relative: float = 1e-4, place: str = "") -> None:
    """Equal, but for the rounding of numbers that are not whole, and for fields that are new."""
    if isinstance(expected, dict):
        assert isinstance(got, dict), place
        assert expected.keys() <= got.keys(), f"{place}: lacks {sorted(expected.keys() - got.keys())}"
        for name, value in expected.items():
            assert_same(got[name], value, relative, f"{place}/{name}")
    elif isinstance(expected, list):
        assert isinstance(got, list), place
        assert len(got) == len(expected), f"{place}: {got} instead of {expected}"
        for number, (left, right) in enumerate(zip(got, expected, strict=True)):
            assert_same(left, right, relative, f"{place}/{number}")
    elif isinstance(expected, float):
        assert got == pytest.approx(expected, rel=relative, abs=relative / 10), place
    elif isinstance(expected, str) and re.fullmatch(r"-?\d+\.\d+", expected):
        # Printed to four places.
        assert float(got) == pytest.approx(float(expected), abs=2e-4), place
    else:
        assert got == expected, f"{place}: {got!r} instead of {expected!r}"
        assert type(got) is type(expected), f"{place}: {got!r} instead of {expected!r}"


def assert_same_weights(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """To rounding, which the optimizer magnifies where a gradient is next to nothing."""
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(
            got[name], tensor, rtol=ROUNDING, atol=ROUNDING, msg=lambda text, name=name: f"{name}: {text}"
        )
