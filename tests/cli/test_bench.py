"""`quasirnn bench`: the command line as typed, with plans that end at once. No test asserts wall time."""

import functools
import gc
import importlib.util
import json
import sys

import pytest

from benchmarks.tiny import ARGUMENTS, PLANS
from quasirnn.benchmarks import correctness, machine
from quasirnn.benchmarks.memory import MeasurementFailed
from quasirnn.cli.main import main
from quasirnn.models import linear_cross_entropy

# The same for every benchmark.
CHECK_LAYER = functools.cache(correctness.check_layer)


@pytest.fixture
def bench(monkeypatch, capsys, tmp_path):
    """Run `quasirnn bench ARGUMENTS` in this process with tiny plans, and return exit code, output and messages.

    Memory is measured here as well; that a process of its own does so is tested in benchmarks/test_memory.py.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "cores_in_use", lambda: 0.0)
    monkeypatch.setattr(correctness, "check_layer", CHECK_LAYER)
    monkeypatch.setattr(gc, "collect", lambda: 0)
    for module, plan in PLANS.values():
        monkeypatch.setattr(
            module, "in_child", lambda measure, given, what: measure(**json.loads(json.dumps(given))), raising=False
        )
        monkeypatch.setattr(module, "QUICK", plan)
        monkeypatch.setattr(module, "FULL", None)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["quasirnn", "bench", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return end.value.code or 0, printed.out, printed.err

    return run


# In place of a measurement in a process of its own.
MEMORY = {"training_bytes": 2, "process_bytes": 3, "method": "none"}

IN_THE_TABLE = {
    "int8": "nn.LSTM int8 / QRNN int8",
    "layer": "nn.LSTM / QRNN, training",
    "floor": "QRNN / its three GEMMs",
    "step": "median",
    "scale": "memory, MB",
    "train-step": "nn.LSTMCell loop",
    "task": "multiply-adds per time step: recurrent part",
    "softmax": "chunks of 4e-05 million",
    "decoding": "2 x 5",
    "onnx": "nn.LSTM / QRNN under onnxruntime",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PLANS))
def test_each_prints_a_table_and_writes_figures_and_a_picture(bench, tmp_path, name):
    typed = (name, *ARGUMENTS.get(name, ()), "--quick", "--threads", "1")
    code, out, err = bench(*typed, "--output", "figures.json", "--plot", "picture.png")
    assert (code, err) == (0, "")
    assert IN_THE_TABLE[name] in out
    assert "1 thread" in out
    assert "1 threads" not in out
    assert f"quasirnn bench {' '.join(typed)}" in out
    assert "Summary" in out
    assert "met" not in out.split()
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
    assert all(set(each) == {"what", "value", "unit"} for each in figures["summary"])
    assert figures["check"]["error"] <= figures["check"]["allowed"]


def test_json_prints_one_object_and_nothing_else(bench):
    code, out, err = bench("layer", "--quick", "--json", "--seed", "7")
    assert (code, err) == (0, "")
    assert json.loads(out)["settings"]["seed"] == 7


def test_seconds_replace_those_of_every_case(bench):
    budget = json.loads(bench("layer", "--quick", "--json", "--seconds", "0.01")[1])["settings"]["budget"]
    assert (budget["seconds"], budget["most_seconds"], budget["min_rounds"]) == (0.01, None, 2)


def test_the_variants_of_the_floor_are_printed_and_drawn(bench, tmp_path):
    code, out, _ = bench("floor", "--quick", "--plot", "picture.svg")
    assert code == 0
    assert out.count("units \\ width") == 2
    assert "float64, training" in out
    assert "f, batch 2, length 3" in (tmp_path / "picture.svg").read_text()


def test_nothing_is_printed_when_results_are_wrong(bench, monkeypatch, tmp_path):
    correct = correctness.fo_pool
    monkeypatch.setattr(correctness, "fo_pool", lambda z, f, o, c0: correct(z, 1 - f, o, c0))
    wrong = linear_cross_entropy.softmax_loss_
    monkeypatch.setattr(linear_cross_entropy, "softmax_loss_", lambda logits, *more: wrong(logits.mul_(1.001), *more))
    for name in PLANS:
        typed = (name, *ARGUMENTS.get(name, ()), "--quick")
        code, out, err = bench(*typed, "--output", "figures.json", "--plot", "picture.png")
        assert (code, out) == (1, "")
        assert err.startswith("quasirnn: wrong results on this machine, so nothing is timed")
        assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_busy_machine_is_named_above_the_table(bench, monkeypatch):
    monkeypatch.setattr(machine, "cores_in_use", lambda: 1.5)
    assert (
        "Warning: this machine is busy. Other processes used 1.5 before the start and " in bench("layer", "--quick")[1]
    )


def test_cpu_time_is_not_a_matter_of_other_work(bench, monkeypatch):
    monkeypatch.setattr(machine, "cores_in_use", lambda: 1.5)
    code, out, _ = bench("layer", "--quick", "--threads", "1", "--cpu-time")
    assert code == 0
    assert "CPU time of this process" in out
    assert "Warning" not in out


def mistake(ended, *words):
    code, out, err = ended
    assert (code, out) == (2, "")
    assert err.startswith("quasirnn: ")
    assert err.count("\n") == 1
    assert all(word in err for word in words), err


def test_mistakes_are_reported_before_anything_is_timed(bench, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for name in PLANS:
        typed = (name, *ARGUMENTS.get(name, ()))
        mistake(bench(*typed, "--device", "cuda"), "--device cuda: torch finds no GPU")
    mistake(bench("layer", "--device", "tpu"), "--device", "tpu")
    mistake(bench("layer", "--cpu-time"), "--cpu-time: needs --threads 1")
    mistake(bench("step", "--plot", "picture.pdf"), "--plot: picture.pdf: plots are written as .png or .svg")
    mistake(bench("step", "--plot", "missing/picture.png"), "the folder missing does not exist")
    mistake(bench("scale", "--output", "missing/figures.json"), "the folder missing does not exist")
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else real(name))
    mistake(bench("floor", "--plot", "picture.png"), "--plot: plotting needs matplotlib: pip install 'quasirnn[plot]'")


def test_mistakes_in_a_task_are_reported_before_anything_is_timed(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(correctness, "check_pooling", None)
    mistake(bench("task", "sentimant"), "sentimant: no such task; the tasks are", "language-model")
    mistake(bench("task"), "TASK")
    mistake(
        bench("task", "language-model", "--quick", "hiden_size=8", "dropout=2", "cell=lstm"),
        "3 mistakes:",
        "hiden_size: no such key; did you mean hidden_size?",
        "dropout: must be below 1, got 2",
        "cell: not a KEY",
    )
    mistake(
        bench("task", "language-model", "--quick", "--preset", "papper"),
        "--preset papper: no such preset; language-model has demo",
    )
    mistake(bench("task", "language-model", "--quick", "precision=float16"), "precision=float16 needs a GPU")
    mistake(bench("task", "language-model", "--quick", "--data", "nowhere"), "nowhere")
    mistake(bench("task", "language-model", "--quick", "--steps", "0"), "--steps")
    mistake(bench("task", "language-model", "--quick", "--seed", "2"), "--seed")
    assert not list(tmp_path.iterdir())


def test_settings_that_do_not_fit_the_data_are_reported(bench):
    mistake(bench("task", "language-model", "--quick", "hidden_size=4", "batch_size=1000000"), "batch_size")


def test_steps_and_seed_of_a_task_can_be_chosen(bench, monkeypatch):
    monkeypatch.setattr(PLANS["task"][0], "measure_memory", lambda *_: MEMORY)
    result = json.loads(bench("task", *ARGUMENTS["task"], "--quick", "--json", "--steps", "3", "seed=5")[1])
    assert (result["settings"]["steps"], result["settings"]["seed"]) == (3, 5)
    assert all(cell["seconds"][cell["model"]]["laps"] == 3 for cell in result["cells"])


def test_a_training_that_fails_and_a_measurement_that_fails_are_one_line(bench, monkeypatch):
    def fail(*_):
        raise MeasurementFailed("measuring the memory of QRNN failed: killed")

    monkeypatch.setattr(PLANS["task"][0], "measure_memory", fail)
    assert bench("task", *ARGUMENTS["task"], "--quick") == (
        1,
        "",
        "quasirnn: measuring the memory of QRNN failed: killed\n",
    )
    monkeypatch.setattr(PLANS["task"][0], "measure_memory", lambda *_: MEMORY)
    code, out, err = bench("task", *ARGUMENTS["task"], "--quick", "learning_rate=1e30", "clip=none")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "at step " in err
    assert "training diverges, so its speed is meaningless" in err


def test_ctrl_c_ends_it_without_a_word_or_a_file(bench, monkeypatch, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(PLANS["task"][0], "measure_memory", interrupt)
    assert bench("task", *ARGUMENTS["task"], "--quick", "--output", "figures.json") == (130, "", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.full
@pytest.mark.parametrize("name", list(PLANS))
def test_the_quick_plans_run_as_a_user_runs_them(quasirnn, tmp_path, name):
    typed = (name, *ARGUMENTS.get(name, ()))
    result = quasirnn("bench", *typed, "--quick", "--output", "figures.json", "--plot", "picture.png")
    assert result.returncode == 0, result.stderr
    assert "Summary" in result.stdout
    assert result.stderr == ""
    assert json.loads((tmp_path / "figures.json").read_text())["benchmark"] == name
    assert (tmp_path / "picture.png").exists()
