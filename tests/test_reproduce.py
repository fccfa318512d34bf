"""The script behind `make reproduce-TASK`: what it says without data, and a whole run on a small corpus."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tasks.tiny_translation import keys, paired_rows, write_pairs

ROOT = Path(__file__).parents[1]
TASKS = ("language-model", "sentiment", "translation")


def reproduce(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(ROOT / "scripts" / "reproduce.sh"), *arguments],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_a_target_and_without_data_it_says_what_is_needed(task, tmp_path):
    assert f"\nreproduce-{task}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
    done = reproduce(task, DATA="", RUNS=str(tmp_path / "runs"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"reproduce-{task}: where is ")
    assert f"make reproduce-{task} DATA=folder" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_wrong_requests_and_the_runs_that_are_missing(tmp_path):
    (tmp_path / "data").mkdir()
    where = {"DATA": str(tmp_path / "data"), "RUNS": str(tmp_path / "runs")}
    assert "language-model, sentiment or translation" in reproduce("x", **where).stderr
    done = reproduce("translation", ONLY="ted-paper-qrnn", **where)
    assert (done.returncode, done.stdout) == (2, "")
    assert "has neither ted-lower-de-en/ nor ted-lower-de-en.tar.xz" in done.stderr
    assert "ONLY=x: there is lm-paper-qrnn lm-paper-lstm" in reproduce("language-model", ONLY="x", **where).stderr
    assert "name the word vectors: VECTORS=file" in reproduce("sentiment", **where).stderr
    status = reproduce("language-model", ONLY="status", **where)
    assert (status.returncode, status.stdout) == (0, "")
    assert status.stderr.startswith("Not begun: lm-paper-qrnn lm-paper-lstm lm-best-qrnn")


@pytest.mark.full
def test_a_translation_is_trained_tested_and_left_alone(tmp_path):
    write_pairs(tmp_path / "data" / "tatoeba-de-en", "tatoeba", paired_rows("train"))
    arguments = [key for key in keys("epochs=1", "num_layers=4", "kernel_size=3,2,2,2") if "precision" not in key]
    where = {"DATA": str(tmp_path / "data"), "RUNS": str(tmp_path / "runs")}
    folder = tmp_path / "runs" / "tatoeba-paper-qrnn"
    first = reproduce("translation", *arguments, **where)
    assert first.returncode == 0, first.stderr
    assert "Not begun: ted-paper-qrnn ted-paper-lstm multi30k-paper-qrnn" in first.stderr
    assert "tatoeba-paper-qrnn" in first.stdout
    figures = folder / "evaluation-test.json"
    assert json.loads(figures.read_text())["beam"] == 8
    before = {file: file.stat().st_mtime_ns for file in (folder / "model.safetensors", figures)}
    again = reproduce("translation", *arguments, ONLY="tatoeba-paper-qrnn", **where)
    assert again.returncode == 0, again.stderr
    assert "Nothing left to do" in again.stderr
    assert {file: file.stat().st_mtime_ns for file in before} == before
