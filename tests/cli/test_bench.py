"""`quasirnn bench`: the command line as typed, with plans that end at once. No test asserts wall time."""

import importlib.util
import json
import sys

import pytest

from benchmarks.tiny import PLANS
from quasirnn.benchmarks import correctness, machine
from quasirnn.cli.main import main


@pytest.fixture
def bench(monkeypatch, capsys, tmp_path):
    """Run `quasirnn bench ARGUMENTS` in this process with tiny plans, and return exit code, output and messages."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "cores_in_use", lambda: 0.0)
    for module, plan in PLANS.values():
        monkeypatch.setattr(module, "QUICK", plan)
        monkeypatch.setattr(module, "FULL", None)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["quasirnn", "bench", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out, printed.err

    return run


IN_THE_TABLE = {
    "layer": "nn.LSTM / QRNN, training",
    "floor": "QRNN / its three bare GEMMs",
    "step": "median",
    "scale": "memory, MB",
    "train-step": "nn.LSTMCell loop",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PLANS))
def test_each_prints_a_table_and_writes_figures_and_a_picture(bench, tmp_path, name):
    code, out, err = bench(name, "--quick", "--threads", "1", "--output", "figures.json", "--plot", "picture.png")
    assert (code, err) == (0, "")
    assert IN_THE_TABLE[name] in out
    assert "units \\ width" not in out  # the floor's variants are not part of the quick run
    assert "1 threads" in out
    assert f"quasirnn bench {name} --quick --threads 1" in out
    assert "Summary" in out
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")

    figures = json.loads((tmp_path / "figures.json").read_text())
    assert set(figures) == {"benchmark", "machine", "settings", "cells", "summary", "check"}
    assert figures["benchmark"] == name
    assert figures["machine"]["threads"] == 1
    assert {"cpu", "torch", "backend", "date", "command", "commit", "load_average"} <= set(figures["machine"])
    assert (figures["settings"]["device"], figures["settings"]["seed"]) == ("cpu", 1)
    for cell in figures["cells"]:
        for seconds in cell["seconds"].values():
            assert 0 < seconds["best"] <= seconds["median"] <= seconds["p99"]
            assert seconds["laps"] >= 2
    assert all(set(each) == {"what", "value", "unit", "bar", "met"} for each in figures["summary"])
    assert figures["check"]["error"] <= figures["check"]["allowed"]


def test_json_prints_one_object_and_nothing_else(bench):
    code, out, err = bench("layer", "--quick", "--json", "--seed", "7")
    assert (code, err) == (0, "")
    assert json.loads(out)["settings"]["seed"] == 7


def test_the_variants_of_the_floor_can_be_asked_for_and_drawn(bench, tmp_path):
    code, out, _ = bench("floor", "--quick", "--variants", "--plot", "picture.svg")
    assert code == 0
    assert out.count("units \\ width") == 2
    assert "float64, training" in out
    assert "f, inference, batch 2, length 3" in (tmp_path / "picture.svg").read_text()


def test_nothing_is_printed_when_the_numbers_are_wrong(bench, monkeypatch, tmp_path):
    right = correctness.fo_pool
    monkeypatch.setattr(correctness, "fo_pool", lambda z, f, o, c0: right(z, 1 - f, o, c0))
    for name in PLANS:
        code, out, err = bench(name, "--quick", "--output", "figures.json", "--plot", "picture.png")
        assert (code, out) == (1, "")
        assert err.startswith("quasirnn: the numbers are wrong on this machine")
        assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_busy_machine_is_named_above_the_table(bench, monkeypatch):
    monkeypatch.setattr(machine, "cores_in_use", lambda: 1.5)
    assert "Warning: this machine is busy, others used 1.5 before the start and " in bench("layer", "--quick")[1]


def mistake(found, *words):
    code, out, err = found
    assert (code, out) == (2, "")
    assert err.startswith("quasirnn: ")
    assert err.count("\n") == 1
    assert all(word in err for word in words), err


def test_mistakes_are_told_before_anything_is_timed(bench, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name in PLANS:
        mistake(bench(name, "--device", "cuda"), "--device cuda: torch sees no GPU here")
    mistake(bench("layer", "--device", "tpu"), "--device", "tpu")
    mistake(bench("step", "--plot", "picture.pdf"), "--plot picture.pdf: pictures are written as .png or .svg")
    mistake(bench("step", "--plot", "missing/picture.png"), "there is no folder missing")
    mistake(bench("scale", "--output", "missing/figures.json"), "there is no folder missing")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name))
    mistake(bench("floor", "--plot", "picture.png"), "--plot: drawing needs matplotlib: pip install 'quasirnn[plot]'")


@pytest.mark.full
@pytest.mark.parametrize("name", list(PLANS))
def test_the_quick_plans_run_as_a_user_runs_them(quasirnn, tmp_path, name):
    result = quasirnn("bench", name, "--quick", "--output", "figures.json", "--plot", "picture.png")
    assert result.returncode == 0, result.stderr
    assert "Summary" in result.stdout
    assert result.stderr == ""
    assert json.loads((tmp_path / "figures.json").read_text())["benchmark"] == name
    assert (tmp_path / "picture.png").exists()
