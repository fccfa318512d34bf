"""Make the golden values anew with the sources that are installed: PYTHONPATH=tests python -m golden.make

All that is compared is replaced: values.json, answers.json, weights/ and runs/. See README.md for when that is right.
With --figures, for a deliberate change of what a trained model computes in eval: run folders, weights of checkpoints,
corpora and vocabularies stay and must be met, and only figures and answers are replaced.
With --only NAME, a training of `cases.CORPORA`: that one alone is made anew.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from golden import answers
from golden.cases import CORPORA, EVALUATIONS, QUESTIONS, RUNS, Case
from golden.command import (
    HERE,
    VALUES,
    WEIGHTS,
    asked,
    described,
    evaluated,
    hashes,
    last_checkpoint,
    machine,
    metrics,
    quasirnn,
)
from golden.corpora import write_all
from golden.models import outputs

# The checkpoint, in steps, at which a run that is kept gets its signal.
STOPPED_AT = {"sentiment": 12, "language-model": 15, "translation": 123}


def main() -> None:
    torch.set_num_threads(1)
    for folder in (WEIGHTS, HERE / "runs"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary):
        write_all(Path("corpora"))
        values: dict[str, Any] = {"corpora": {}, "runs": {}}
        for name, case in CORPORA.items():
            values["corpora"][name] = made(name, case)
        for name, case in RUNS.items():
            values["runs"][name] = kept(name, case)
        values["machine"] = machine(Path(next(iter(RUNS))))
        write_json(VALUES, values)
    answers.record()


def renew_one(name: str) -> None:
    """Replace the values and weights of one training."""
    torch.set_num_threads(1)
    values = json.loads(VALUES.read_text())
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary):
        write_all(Path("corpora"))
        values["corpora"][name] = made(name, CORPORA[name])
    write_json(VALUES, values)


def renew_figures() -> None:
    """Replace figures and answers alone."""
    torch.set_num_threads(1)
    values = json.loads(VALUES.read_text())
    with tempfile.TemporaryDirectory() as temporary, contextlib.chdir(temporary):
        write_all(Path("corpora"))
        for name, case in (CORPORA | RUNS).items():
            entry = values["corpora" if name in CORPORA else "runs"][name]
            new = made(name, case)
            for kind in ("corpus", "config", "vocabulary"):
                assert new[kind].items() >= entry[kind].items() if kind != "vocabulary" else new[kind] == entry[kind], (
                    name
                )
            if new["sha256"] != entry["sha256"]:
                print(f"{name}: another model is the best on validation, or the weights have changed")
            entry |= {key: new[key] for key in ("metrics", "sha256", "test")}
            if name in RUNS:
                entry |= used(HERE / "runs" / name, case)
        write_json(VALUES, values)
    answers.record()


def used(run: Path, case: Case) -> dict[str, Any]:
    """What a kept run folder gives."""
    return {
        "evaluate": [{"words": words, "answer": evaluated(run, words)} for words in EVALUATIONS[case.task]],
        "questions": [{"words": words, "answer": asked(run, words)} for words in QUESTIONS[case.task]],
        "outputs": outputs(run, case.task),
    }


def made(name: str, case: Case) -> dict[str, Any]:
    """Train a case in the present folder, keep its weights, and return what else is compared."""
    run = Path(name)
    quasirnn(*case.command, "--out", name)
    shutil.copy(run / "model.safetensors", WEIGHTS / f"{name}.safetensors")
    return {
        **described(run),
        "metrics": metrics(run),
        "sha256": hashes(run),
        "test": case.evaluation and evaluated(run, case.evaluation),
    }


def kept(name: str, case: Case) -> dict[str, Any]:
    """Train a case to its end, and once more until a signal stops it; keep the latter as a run folder."""
    values = made(name, case)
    state = f"step-{STOPPED_AT[case.task]:09d}.tmp/state.json"

    def stop(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(state):
            signal.raise_signal(signal.SIGINT)

    run = Path("stopped")
    quasirnn(*case.command, "--out", str(run), fsync=stop)
    position = json.loads((last_checkpoint(run) / "state.json").read_text())["state"]
    assert position["step"] == STOPPED_AT[case.task] + 1, position
    assert position["epoch"] >= 1, position
    assert position["position"] >= 1, position
    shutil.move(run, HERE / "runs" / name)
    # Only the last checkpoint is needed.
    for folder in (HERE / "runs" / name / "checkpoint").iterdir():
        if folder != last_checkpoint(HERE / "runs" / name):
            shutil.rmtree(folder)
    return values | used(HERE / "runs" / name, case)


def write_json(file: Path, values: Any) -> None:
    file.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    if "--only" in sys.argv:
        renew_one(sys.argv[sys.argv.index("--only") + 1])
    else:
        renew_figures() if "--figures" in sys.argv else main()
