"""The scripts behind `make reproduce-TASK`: what they say without data, and a whole run on a small corpus."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tasks.tiny_translation import keys, paired_rows, write_pairs

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(path.name for path in (ROOT / "scripts").glob("reproduce-*.sh"))


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(ROOT / "scripts" / script), *arguments],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_every_task_has_a_script():
    tasks = ("language-model", "sentiment", "translation")
    assert [f"reproduce-{task}.sh" for task in tasks] == SCRIPTS
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"\nreproduce-{task}:" in targets for task in tasks)


@pytest.mark.parametrize("script", SCRIPTS)
def test_without_data_it_says_what_is_needed(script, tmp_path):
    done = run(script, DATA="", RUNS=str(tmp_path / "runs"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{script.removesuffix('.sh')}: ")
    assert f"make {script.removesuffix('.sh')} DATA=folder" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_corpus_that_is_missing_and_a_part_that_is_none(tmp_path):
    (tmp_path / "data").mkdir()
    where = {"DATA": str(tmp_path / "data"), "RUNS": str(tmp_path / "runs")}
    done = run("reproduce-translation.sh", ONLY="multi30k", **where)
    assert (done.returncode, done.stdout) == (2, "")
    assert "has neither multi30k-de-en/ nor multi30k-de-en.tar.xz" in done.stderr
    assert "there is multi30k, tatoeba, together and iwslt" in run("reproduce-translation.sh", ONLY="x", **where).stderr
    assert "has no iwslt/" in run("reproduce-translation.sh", ONLY="iwslt", **where).stderr


@pytest.mark.full
def test_a_translation_is_trained_tested_and_left_alone(tmp_path):
    write_pairs(tmp_path / "data" / "tatoeba-de-en", "tatoeba", paired_rows("train"))
    arguments = [key for key in keys("epochs=1", "num_layers=4", "kernel_size=3,2,2,2") if "precision" not in key]
    where = {"DATA": str(tmp_path / "data"), "RUNS": str(tmp_path / "runs"), "ONLY": "tatoeba"}
    folder = tmp_path / "runs" / "tatoeba-paper-qrnn"
    first = run("reproduce-translation.sh", *arguments, **where)
    assert first.returncode == 0, first.stderr
    figures = {beam: folder / f"test-tatoeba-beam{beam}.json" for beam in (1, 8)}
    assert {beam: json.loads(file.read_text())["beam"] for beam, file in figures.items()} == {1: 1, 8: 8}
    before = {file: file.stat().st_mtime_ns for file in (folder / "model.safetensors", *figures.values())}
    again = run("reproduce-translation.sh", *arguments, **where)
    assert again.returncode == 0, again.stderr
    assert "Nothing left to do" in again.stderr
    assert {file: file.stat().st_mtime_ns for file in before} == before
