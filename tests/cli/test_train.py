"""`quasirnn train` from the first word to the last: run folders, mistakes, resuming, signals, several processes."""

import errno
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed

from cli.command import LAUNCHER, SCRIPT, Process, as_json, everything, here, read
from cli.interrupted import kill_at_random_moments, resumes, steps_saved
from processes import run_together
from quasirnn.cli.main import main
from quasirnn.cli.train import Lines, duration
from quasirnn.tasks.language_model import BUILT_IN
from quasirnn.tasks.training_run import Request, train
from quasirnn.training import RunLock, checkpoint
from quasirnn.training.run_log import read_metrics
from tasks.tiny import SENTIMENT, TASKS
from tasks.tiny_language_model import keys, write_texts
from tasks.tiny_sentiment import write_vectors
from training.tiny import hashes, newest, series

TRAIN = ("train", "language-model")
FILES = {
    *("config.json", "training.json", "vocabulary.json", "environment.json"),
    *("model.safetensors", "metrics.jsonl", "checkpoint"),
}
each_task = pytest.mark.parametrize("tiny", TASKS.values(), ids=TASKS)


@pytest.fixture
def texts(tmp_path):
    return write_texts(tmp_path / "texts")


@pytest.fixture
def data(request, tmp_path):
    """The data of the task that a test is about."""
    return request.getfixturevalue("tiny").write(tmp_path / "data")


# What all tasks have alike.

FIGURES = {
    "sentiment": ["loss", "accuracy"],
    "language-model": ["loss", "perplexity", "bits"],
    "translation": ["loss", "bleu", "chrf", "exact_match"],
}
UNITS = {"sentiment": "texts", "language-model": "words", "translation": "pairs"}
NEXT = {"sentiment": "classify", "language-model": "generate", "translation": "translate"}


@each_task
@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_a_run_folder_is_complete_and_what_is_printed_for_typing_next_works(tiny, data, tmp_path, cell):
    run = tmp_path / "a run"
    result = here("train", tiny.name, "--data", data, "--out", run, "--cell", cell, *tiny.keys("epochs=2", cell=cell))
    assert (result.code, result.stdout) == (0, "")
    assert {file.name for file in run.iterdir()} >= FILES

    training, config = read(run, "training.json"), read(run, "config.json")
    assert (training["task"], training["preset"], training["data"]) == (tiny.name, "fast", [str(data)])
    assert set(training["settings"]) == set(tiny.task.settings.model_fields)
    assert training["settings"]["cell"] == config["cell"] == cell
    assert training["command"].startswith(f"quasirnn train {tiny.name} --data ")
    assert set(training["corpus"]["splits"]) == set(tiny.task.training_splits)
    assert len(read(run, "vocabulary.json")["tokens"]) == config["vocabulary_size"] == training["corpus"]["vocabulary"]
    assert read(run, "environment.json")["threads"] == 1

    records = read_metrics(run / "metrics.jsonl")
    assert [record["event"] for record in records if record["event"] != "train"] == ["start", "valid", "valid", "stop"]
    last = records[-2]
    figures = ", ".join(f"{name} {last[name]:.5g}" for name in FIGURES[tiny.name])
    assert f"epoch 2, step {last['step']}: validation {figures}\n" in result.stderr
    settings = training["settings"]
    assert f"{tiny.name}, preset fast: {cell.upper()}, 2 layers of {settings['hidden_size']}, " in result.stderr
    assert f" parameters; data: train {48 if tiny is SENTIMENT else ''}" in result.stderr
    assert f" {UNITS[tiny.name]}, vocabulary {config['vocabulary_size']}\n" in result.stderr

    commands = [shlex.split(line) for line in result.stderr.partition("Next:\n")[2].splitlines()]
    assert [command[1] for command in commands] == ["evaluate", NEXT[tiny.name]]
    for program, *arguments in commands:
        assert Path(program).resolve() == Path(SCRIPT).resolve()
        assert here(*arguments).code == 0
    # The best model is the one that is kept, and `evaluate` finds its figure again.
    best = (max if tiny is SENTIMENT else min)(r[tiny.task.best_by] for r in records if r["event"] == "valid")
    evaluated = as_json("evaluate", run, "--split", "valid")[tiny.task.best_by]
    assert evaluated == pytest.approx(best, rel=1e-5)


@each_task
def test_the_same_command_gives_the_same_run(tiny, data, tmp_path):
    for name, seed in (("one", 1), ("two", 1), ("other", 2)):
        arguments = ["--data", data, "--out", tmp_path / name, *tiny.keys("max_steps=7", f"seed={seed}")]
        assert here("train", tiny.name, *arguments).code == 0
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")
    assert series(tmp_path / "one") == series(tmp_path / "two")
    assert hashes(tmp_path / "other") != hashes(tmp_path / "one")


@each_task
def test_training_teaches_and_ends_with_its_curves(tiny, data, tmp_path):
    keys = tiny.keys("epochs=4", "dropout=0")
    assert train(tiny.task, Request([str(data)], preset="fast", out=tmp_path / "run", overrides=keys)).outcome.best
    losses = [r["loss"] for r in read_metrics(tmp_path / "run" / "metrics.jsonl") if r["event"] == "valid"]
    assert losses[-1] < losses[0]
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")


@each_task
def test_show_prints_every_key_as_it_could_be_given_and_creates_nothing(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vectors = ["--vectors", "glove.txt"] if tiny is SENTIMENT else []
    arguments = ["train", tiny.name, "--preset", "paper", "--show", *vectors]
    shown = here(*arguments, "hidden_size=100", "max_minutes=5")
    assert (shown.code, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"{tiny.name}, preset paper, changed where marked *\n")
    lines = {line[2:].split("=")[0]: line for line in shown.stdout.splitlines() if "=" in line.split("#")[0]}
    assert set(lines) == set(tiny.task.settings.model_fields) - {"cell", "vectors", "lstm_init", "init_from"}
    paper = tiny.settings(preset="paper")
    assert lines["hidden_size"].startswith("* hidden_size=100 ")
    assert lines["hidden_size"].endswith(f"# paper: {paper.hidden_size}; units per layer")
    assert f"batch_size={paper.batch_size} " in lines["batch_size"]
    assert lines["batch_size"].startswith("  ")
    assert "# paper " in lines["batch_size"]
    assert "  --cell qrnn " in shown.stdout
    assert ("* --vectors glove.txt " in shown.stdout) == bool(vectors)
    # What is shown can be given back, and is then the preset with the same changes.
    assert here(*arguments, *(line[2:].split(" ")[0] for line in lines.values())).stdout == shown.stdout
    lstm = here("train", tiny.name, "--show", "--cell", "lstm").stdout
    assert lstm.startswith(f"{tiny.name}, preset demo\n")
    assert "--cell lstm" in lstm
    assert "zoneout" not in lstm
    assert os.listdir(tmp_path) == []


@each_task
def test_resume_refuses_what_contradicts_the_run(tiny, data, tmp_path):
    run = tmp_path / "run"
    tiny.train(run, data, "max_steps=2")
    before = everything(run)
    other = next(name for name in TASKS if name != tiny.name)
    assert here("train", other, "--out", run, "--resume").mistake == f"{run}: is a {tiny.name} run, not a {other} run."
    resume = ["train", tiny.name, "--out", run, "--resume"]
    mistake = here(
        *resume, "--data", tmp_path, "--cell", "lstm", "--preset", "paper", "hidden_size=9", "epochs=3", "sede=2"
    ).mistake
    for part in (
        "--preset: the run was started with fast, not paper",
        "--cell: the run was started with qrnn, not lstm",
        "--data: the run was started with ",
        "hidden_size: the run was started with ",
        "sede: no such key; did you mean seed?",
    ):
        assert part in mistake
    # The same rows in another order: the steps would be others.
    file = next(file for file in sorted(data.iterdir()) if file.stem == "train")
    content = file.read_text()
    file.write_text("".join(content.splitlines(keepends=True)[::-1]))
    changed = f"{run}: the data have changed since the run was started (sha256 "
    assert here(*resume, "max_steps=4").mistake.startswith(changed)
    file.unlink()
    assert here(*resume, "max_steps=4").code == 2
    assert everything(run) == before
    file.write_text(content)
    assert here(*resume, "max_steps=4").code == 0


PARTS = {
    "language model in half the bits": ("language-model", "qrnn", ["precision=bfloat16"]),
    "LSTM in half the bits": ("language-model", "lstm", ["precision=bfloat16"]),
    "classifier": ("sentiment", "qrnn", ["kernel_size=3,1", "pooling=ifo", "max_length=5", "dense=no"]),
    "LSTM classifier": (
        *("sentiment", "lstm"),
        ["lstm_init=orthogonal", "optimizer=rmsprop", "weight_decay=0", "l2=1e-4"],
    ),
    "translator": ("translation", "qrnn", ["dropout=0.2", "zoneout=0.1", "pooling=ifo", "lowercase=yes"]),
    "LSTM translator": ("translation", "lstm", ["dropout=0.2", "optimizer=adam", "weight_decay=0", "l2=1e-4"]),
}


@pytest.fixture
def _another_precision():
    """Accelerate keeps one for the whole process."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.usefixtures("_another_precision")
@pytest.mark.parametrize(("name", "cell", "more"), PARTS.values(), ids=PARTS)
def test_guarantee_exact_resume_in_three_parts(tmp_path, monkeypatch, name, cell, more):
    monkeypatch.chdir(tmp_path)
    tiny = TASKS[name]
    data, options = tiny.write(tmp_path / "data"), []
    if (name, cell) == ("sentiment", "qrnn"):
        write_vectors(tmp_path / "vectors.npz")
        options = ["--vectors", "vectors.npz"]
    limited = tiny.keys("epochs=3", "schedule=constant", *more, "max_steps=13", cell=cell)
    begin = ["train", name, "--data", data, "--cell", cell, *options]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert here(*begin, "--out", whole, *limited).code == 0
    assert here(*begin, "--out", parts, *limited[:-1], "max_steps=4").code == 0
    # The data are those of the run, and need not be named again. The epochs have 6, 14 and 20 steps.
    for limit in ("max_steps=7", "max_steps=13"):
        assert here("train", name, "--out", parts, "--resume", limit).code == 0
    assert resumes(parts, checkpoint_every=10) == [4, 7]
    assert hashes(parts) == hashes(whole)
    assert series(parts)[-1] == series(whole)[-1]
    assert here("evaluate", parts, "--json").code == 0


# Mistakes.


def test_all_mistakes_are_told_at_once_each_with_the_nearest_key(texts, tmp_path):
    mistake = here(
        *TRAIN, "--data", texts, "--out", tmp_path / "run", "hiden_size=3", "dropout=2", "levle=word", "x", "epochs=a"
    ).mistake
    assert mistake.startswith("5 mistakes: ")
    for part in (
        "hiden_size: no such key; did you mean hidden_size?",
        "levle: no such key; did you mean level?",
        "dropout: must be below 1, got 2.0",
        "'x': must be KEY=VALUE",
        "epochs: must be an integer, got 'a'",
    ):
        assert part in mistake
    assert not (tmp_path / "run").exists()


WRONG = {
    "language-model": {
        "--preset papier": "--preset papier: no such preset; language-model has demo, paper, fast, best.",
        "--cell lsmt": "--cell: must be one of qrnn, lstm, got 'lsmt'; did you mean lstm?",
        "--cell lstm zoneout=.1": "zoneout: lstm has none; it belongs to qrnn",
        "--cell lstm kernel_size=2": "kernel_size: lstm has none",
        "cell=lstm": "cell: not a KEY; use --cell lstm",
        "tied=true embedding_size=5": "embedding_size: with tied=true it must be hidden_size=192, got 5",
        "precision=float16": "precision=float16 needs a GPU",
        "epochs=0": "epochs must be at least 1, got 0",
        "max_steps=0": "max_steps must be at least 1, got 0",
        "max_minutes=0": "max_minutes must be ",
        "--resume": "--resume needs the run to continue: --out RUN --resume.",
        "--vectors glove.txt": "--vectors: this task has no such option",
        "--vectors glove.txt --show": "--vectors: this task has no such option",
        "--data nowhere": "nowhere: not found",
    },
    "sentiment": {
        "--preset papier": "--preset papier: no such preset; sentiment has demo, paper, fast, best.",
        "lstm_init=orthogonal": "lstm_init: qrnn has none; it belongs to lstm",
        "vectors=glove.txt": "vectors: not a KEY; use --vectors glove.txt",
        "level=word": "level: no such key",
        "max_length=0": "max_length: must be at least 1, got 0",
        "max_vocabulary=2": "max_vocabulary: must be at least 3, got 2",
        "l2=1e-6": "l2: adamw does not support it; use weight_decay, or another optimizer",
    },
    "translation": {
        "source=en": "target: must differ from source=en",
        "source=fr": "the built-in translations are from de to en, not from fr to en; for other languages give",
        "max_vocabulary=4": "max_vocabulary: must be at least 5, got 4",
        "sample=-1": "sample: must be at least 0, got -1",
        "kernel_size=6,2,2": "kernel_size: 3 widths for num_layers=2; give one per layer, or one for all",
    },
    "langage-model": {
        "": "no such task; the tasks are sentiment, language-model, translation; did you mean language-model?"
    },
}


@pytest.mark.parametrize(
    ("task", "arguments", "message"),
    [(task, arguments, message) for task, cases in WRONG.items() for arguments, message in cases.items()],
)
def test_wrong_requests_are_one_line_and_nothing_is_created(tmp_path, monkeypatch, task, arguments, message):
    monkeypatch.chdir(tmp_path)
    if "precision=float16" in arguments and torch.accelerator.is_available():
        pytest.skip("there is a GPU")
    assert message in here("train", task, *arguments.split()).mistake
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"], ids=["", "BOM"])
@pytest.mark.parametrize("last", [True, False], ids=["", "no final newline"])
def test_guarantee_text_as_it_comes_training_counts_lines_rightly(tmp_path, end, start, last):
    """U+0085, U+2028 and a lone CR are no line ends."""
    lines = ["the cat\u0085sat", "on\u2028a mat", "a\rdog"] * 20
    for name in ("train", "valid", "test"):
        content = end.join(line.encode() for line in lines) + (end if last else b"")
        (tmp_path / f"{name}.txt").write_bytes(start + content)
    assert here(*TRAIN, "--data", tmp_path, "--out", tmp_path / "run", *keys("max_steps=1")).code == 0
    corpus = read(tmp_path / "run", "training.json")["corpus"]
    assert {split["lines"] for split in corpus["splits"].values()} == {60}
    # White space separates words, whichever it is: 3 + 3 + 2 words and 3 line ends.
    assert corpus["splits"]["train"]["tokens"] == 20 * 11


# Around the training of a language model: what the engine, the display and the command do for all tasks.


def test_without_data_the_built_in_corpus_and_the_demo_preset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = here(*TRAIN, "hidden_size=8", "batch_size=8", "max_steps=2")
    assert result.code == 0, result.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("language-model-2")
    training = read(run, "training.json")
    assert (training["preset"], training["data"], training["settings"]["level"]) == ("demo", [], "character")
    assert (training["corpus"]["name"], len(training["corpus"]["sha256"])) == (BUILT_IN, 64)


def test_a_terminal_sees_a_bar_and_all_lines(texts, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    result = here(*TRAIN, "--data", texts, "--out", tmp_path / "[run]", *keys())
    assert result.code == 0
    for words in ("epoch 1/1, step ", " tokens/s", " left", "validation loss", f"Run: {tmp_path}/[run]"):
        assert words in result.stderr
    assert "\x1b[" in result.stderr


def test_a_log_gets_a_sign_of_life_now_and_then(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(Lines, "every", 0.0)
    lines = here(*TRAIN, "--data", texts, "--out", tmp_path / "run", *keys()).stderr.splitlines()
    signs = [line for line in lines if line.startswith("epoch 1/1, step ")]
    assert len(signs) == 14
    for word in ("step 14/14", "loss 2.", " tokens/s", "0:00 left"):
        assert word in signs[-1]
    assert "epoch 1/1, validating 1/1" in lines
    assert duration(3 * 3600 + 62) == "3:01:02"


def test_an_existing_run_is_not_touched(own_run, texts):
    before = everything(own_run)
    mistake = here(*TRAIN, "--data", texts, "--out", own_run, *keys()).mistake
    assert mistake == f"{own_run}: already exists. Continue it with --resume, or choose another --out."
    assert everything(own_run) == before


def test_a_run_that_another_process_trains_is_not_touched(own_run):
    """A resume with another limit would rewrite training.json under the training that is using it."""
    with RunLock(own_run):
        before = everything(own_run)
        result = here(*TRAIN, "--out", own_run, "--resume", "max_steps=120")
        assert (result.code, result.stdout) == (2, "")
        told = f"quasirnn: {own_run}: process {os.getpid()} is training in this folder."
        assert result.stderr.splitlines()[-1].startswith(told)
        assert everything(own_run) == before


def test_resume_goes_on_where_more_is_asked_for(own_run):
    nothing = here(*TRAIN, "--out", own_run, "--resume")
    assert nothing.code == 0
    assert (
        "Nothing left to do: the run is at step 14. To continue, raise the limit, for example epochs=2."
        in nothing.stderr
    )

    more = here(*TRAIN, "--out", own_run, "--resume", "epochs=2", "checkpoint_every=3")
    assert more.code == 0
    assert "Resumed at step 14." in more.stderr
    assert "Finished after 28 steps" in more.stderr
    assert read(own_run, "training.json")["settings"]["epochs"] == 2
    events = [(record["event"], record["step"]) for record in read_metrics(own_run / "metrics.jsonl")]
    assert [event for event in events if event[0] in ("start", "resume", "valid")] == [
        ("start", 0),
        ("valid", 14),
        ("resume", 14),
        ("valid", 28),
    ]


@pytest.mark.parametrize(
    ("limit", "step", "hint"),
    [("max_steps=5", 5, "max_steps=10"), ("max_minutes=1e-9", 1, "max_minutes=2e-09"), ("epochs=1", 14, "epochs=2")],
)
def test_what_ended_a_run_is_what_lets_it_go_on(texts, tmp_path, limit, step, hint):
    run = tmp_path / "run"
    first = here(*TRAIN, "--data", texts, "--out", run, *keys(limit))
    assert ("Out of time" if "minutes" in limit else "Finished") + f" after {step} step" in first.stderr
    nothing = here(*TRAIN, "--out", run, "--resume")
    assert f"the run is at step {step}. To continue, raise the limit, for example {hint}." in nothing.stderr
    if "minutes" not in limit:
        assert here(*TRAIN, "--out", run, "--resume", hint).stderr.count("Nothing left to do") == 0


def test_early_stopping_ends_a_run_for_good(texts, tmp_path):
    run = tmp_path / "run"
    first = here(*TRAIN, "--data", texts, "--out", run, *keys("epochs=9", "patience=1", "learning_rate=1"))
    assert "Stopped early after " in first.stderr
    again = here(*TRAIN, "--out", run, "--resume", "epochs=99")
    assert "It stopped early: no improvement on validation for 1 epochs." in again.stderr


def test_resuming_where_nothing_is_yet_starts(texts, tmp_path):
    result = here(*TRAIN, "--data", texts, "--out", tmp_path / "run", "--resume", *keys("max_steps=2"))
    assert (result.code, read_metrics(tmp_path / "run" / "metrics.jsonl")[0]["event"]) == (0, "start")


def test_guarantee_bad_numbers_stop_and_say_at_which_step(texts, tmp_path):
    result = here(
        *TRAIN, "--data", texts, "--out", tmp_path / "run", *keys("learning_rate=1e30", "clip=none", "weight_decay=0")
    )
    assert result.code == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("quasirnn: step ")
    assert "the weights were not updated" in last


def test_guarantee_failing_loudly_names_the_path_and_keeps_the_checkpoint_before(texts, tmp_path, monkeypatch):
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert here(*TRAIN, "--data", texts, "--out", whole, *keys()).code == 0
    write = checkpoint.write_synced

    def full(path, data):
        if "step-000000010" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_synced", full)
        result = here(*TRAIN, "--data", texts, "--out", run, *keys())
    assert result.code == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"quasirnn: cannot write {run}/checkpoint/step-000000010")
    assert "No space left on device" in last
    assert newest(run).name == "step-000000005"
    assert here(*TRAIN, "--out", run, "--resume").code == 0
    assert hashes(run) == hashes(whole)


# What follows runs the command as a process. Steps take milliseconds, so there must be many of them.
CHECKPOINT_EVERY = 7
LONG = ("epochs=30", f"checkpoint_every={CHECKPOINT_EVERY}", "max_steps=400")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of many steps."""
    folder = tmp_path_factory.mktemp("whole")
    data = write_texts(folder / "texts")
    assert here(*TRAIN, "--data", data, "--out", folder / "run", *keys(*LONG)).code == 0
    return folder / "run"


OTHERS = {"sentiment": ("batch_size=2", "epochs=20"), "translation": ("hidden_size=8", "batch_size=4", "sample=1")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kills"),
    [
        ("language-model", 2),
        *(
            pytest.param(name, kills, marks=pytest.mark.full)
            for name, kills in (("language-model", 10), ("sentiment", 5), ("translation", 5))
        ),
    ],
)
def test_guarantee_exact_resume_of_a_killed_training(tmp_path, name, kills):
    """By SIGKILL at any moment. What the engine does is the same for all tasks: one is killed by default."""
    tiny, whole, run = TASKS[name], tmp_path / "whole", tmp_path / "run"
    begin = ["train", name, "--data", tiny.write(tmp_path / "data"), *tiny.keys(*LONG, *OTHERS.get(name, ()))]
    assert here(*begin, "--out", whole).code == 0
    targets = kill_at_random_moments(run, tmp_path / "output.txt", [*begin, "--out", run, "--resume"], kills)
    assert here("train", name, "--out", run, "--resume").code == 0
    assert hashes(run) == hashes(whole), f"killed at {targets}"
    assert series(run) == series(whole)
    assert len(resumes(run, CHECKPOINT_EVERY)) == kills


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.full) for each in (signal.SIGINT, signal.SIGHUP))],
)
def test_guarantee_stops_cleanly_with_a_line_to_go_on_with(whole, tmp_path, number):
    run = tmp_path / "run"
    process = Process(tmp_path / "output.txt", *TRAIN, "--data", whole.parent / "texts", "--out", run, *keys(*LONG))
    process.wait_for(lambda: steps_saved(run) >= 7)
    process.popen.send_signal(number)
    assert process.wait() == 128 + number, process.output
    step = steps_saved(run)
    assert 7 <= step < 400
    lines = process.output.splitlines()
    told, command = lines[lines.index(next(line for line in lines if line.startswith("Stopped"))) :][:2]
    assert told == f"Stopped and saved at step {step:,}. To continue:"
    program, *arguments = shlex.split(command)
    assert Path(program).resolve() == Path(SCRIPT).resolve()
    assert here(*arguments).code == 0
    assert resumes(run, CHECKPOINT_EVERY) == [step]
    assert hashes(run) == hashes(whole)
    assert series(run) == series(whole)


needs_gloo = pytest.mark.skipif(not distributed.is_gloo_available(), reason="this torch has no gloo")


@pytest.mark.slow
@needs_gloo
def test_two_processes_train_one_run_and_learn_what_one_process_learns(texts, tmp_path):
    """The same global batch, without dropout and zoneout: the same figures to rounding."""
    same = keys("dropout=0", "output_dropout=0", "zoneout=0", "epochs=2")
    two, one = tmp_path / "two", tmp_path / "one"
    output = tmp_path / "output.txt"
    codes = run_together(main, [SCRIPT, *TRAIN, "--data", texts, "--out", two, *same], output)
    printed = output.read_text()
    assert codes == [0, 0], printed
    assert here(*TRAIN, "--data", texts, "--out", one, *same).code == 0
    assert {file.name for file in two.iterdir()} >= FILES
    assert read_metrics(two / "metrics.jsonl")[0]["processes"] == 2
    figures = [[r["perplexity"] for r in series(run) if r["event"] == "valid"] for run in (two, one)]
    assert len(figures[0]) == 2
    assert figures[0] == pytest.approx(figures[1], rel=1e-5)
    # Told once, and by the name that works from here.
    assert printed.count(f"Run: {two}") == 1
    assert printed.count(f"quasirnn evaluate {two}") == 1
    # One process cannot go on with what two have saved.
    assert "was written by 2 process(es), this run has 1" in here(*TRAIN, "--out", two, "--resume", "epochs=3").stderr


@pytest.mark.slow
@pytest.mark.full
@needs_gloo
def test_guarantee_exact_resume_of_two_processes_after_sigterm(whole, tmp_path):
    uninterrupted, run = tmp_path / "uninterrupted", tmp_path / "run"
    data = ["--data", whole.parent / "texts"]
    process = Process(tmp_path / "1.txt", *TRAIN, *data, "--out", uninterrupted, *keys(*LONG), launcher=LAUNCHER)
    assert process.wait() == 0, process.output
    process = Process(tmp_path / "2.txt", *TRAIN, *data, "--out", run, *keys(*LONG), launcher=LAUNCHER)
    process.wait_for(lambda: steps_saved(run) >= 14)
    process.popen.send_signal(signal.SIGTERM)
    # The launcher passes the signal on and waits; its own exit code tells of the signal.
    process.wait()
    assert "Stopped and saved at step " in process.output
    assert f"{sys.executable} -m quasirnn train" in process.output
    step = steps_saved(run)
    process = Process(tmp_path / "3.txt", *TRAIN, "--out", run, "--resume", launcher=LAUNCHER)
    assert process.wait() == 0, process.output
    assert resumes(run, CHECKPOINT_EVERY) == [step]
    assert hashes(run) == hashes(uninterrupted)
    assert series(run) == series(uninterrupted)
