"""`quasirnn train sentiment`: labelled files of every kind, word vectors, mistakes in them, and exact resuming."""

import json
import os
import shlex
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from cli.command import SCRIPT, as_json, everything, here
from cli.interrupted import kill_at_random_moments, resumes
from quasirnn.data import labelled_corpus
from quasirnn.models.bag_of_words import accuracy, fit_best
from quasirnn.tasks.sentiment import TASK as SENTIMENT
from quasirnn.tasks.sentiment import SentimentSettings
from quasirnn.tasks.training_run import Request, train
from quasirnn.training.metrics import read_metrics
from tasks.tiny_sentiment import THREE, TWO, keys, labelled_rows, write_labelled, write_rows, write_vectors
from training.tiny import hashes, series

TRAIN = ("train", "sentiment")


@pytest.fixture
def texts(tmp_path):
    return write_labelled(tmp_path / "texts")


def read(run: Path, name: str) -> dict:
    return json.loads((run / name).read_text())


@pytest.mark.parametrize(
    ("suffix", "classes", "cell"), [(".tsv", TWO, "qrnn"), (".csv", TWO, "lstm"), (".jsonl", THREE, "qrnn")]
)
def test_a_run_folder_is_complete(tmp_path, suffix, classes, cell):
    texts, run = write_labelled(tmp_path / "texts", suffix, classes), tmp_path / "a run"
    result = here(*TRAIN, "--data", texts, "--out", run, "--cell", cell, *keys())
    assert (result.code, result.stdout) == (0, "")

    training = read(run, "training.json")
    assert (training["task"], training["preset"], training["data"]) == ("sentiment", "fast", [str(texts)])
    assert set(training["settings"]) == set(SentimentSettings.model_fields)
    assert training["settings"]["cell"] == read(run, "config.json")["cell"] == cell
    assert training["corpus"]["classes"] == list(classes)
    assert set(training["corpus"]["splits"]) == {"train", "valid"}
    vocabulary = read(run, "vocabulary.json")
    assert (vocabulary["kind"], vocabulary["tokeniser"]) == ("word", "review")

    records = read_metrics(run / "metrics.jsonl")
    assert [record["event"] for record in records if record["event"] != "train"] == [
        "start",
        *["valid"] * 3,
        "stop",
    ]
    last = records[-2]
    assert 0 <= last["accuracy"] <= 100

    assert f"{cell.upper()}, 2 layers of 8, " in result.stderr
    assert " parameters; texts: train 48, valid 12 texts, vocabulary " in result.stderr
    assert result.stderr.count("Note: vectors: words start at random; --vectors FILE starts from GloVe's") == 1
    assert f"validation loss {last['loss']:.5g}, accuracy {last['accuracy']:.5g}" in result.stderr

    _, _, following = result.stderr.partition("Next:\n")
    commands = [shlex.split(line) for line in following.splitlines()]
    assert [command[1] for command in commands] == ["evaluate", "classify"]
    for program, *arguments in commands:
        assert Path(program).resolve() == Path(SCRIPT).resolve()
        assert here(*arguments).code == 0


def test_the_same_command_gives_the_same_run(texts, tmp_path):
    for name, seed in (("one", 1), ("two", 1), ("other", 2)):
        arguments = ["--data", texts, "--out", tmp_path / name, *keys("epochs=1", f"seed={seed}")]
        assert here(*TRAIN, *arguments).code == 0
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")
    assert series(tmp_path / "one") == series(tmp_path / "two")
    assert hashes(tmp_path / "other") != hashes(tmp_path / "one")


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_training_teaches(tiny_sentiment, cell):
    """Half of the texts would be right by chance."""
    run = tiny_sentiment / cell
    losses = [record["loss"] for record in read_metrics(run / "metrics.jsonl") if record["event"] == "valid"]
    assert losses[-1] < losses[0]
    assert as_json("evaluate", run, "--split", "valid")["accuracy"] >= 75
    assert as_json("evaluate", run)["accuracy"] >= 75


def test_a_training_ends_with_its_curves(texts, tmp_path):
    asked = Request(data=[str(texts)], out=tmp_path / "run", overrides=keys("epochs=1"))
    assert train(SENTIMENT, asked).outcome.best is not None
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_show_prints_every_key_as_it_could_be_given_and_makes_nothing(texts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = everything(tmp_path)
    shown = here(*TRAIN, "--preset", "paper", "--show", "hidden_size=320", "--vectors", "glove.txt")
    assert (shown.code, shown.stderr) == (0, "")
    assert shown.stdout.startswith("sentiment, preset paper, changed where marked *\n")
    lines = {line[2:].split("=")[0]: line for line in shown.stdout.splitlines() if "=" in line.split("#")[0]}
    assert set(lines) == set(SentimentSettings.model_fields) - {"cell", "vectors", "lstm_init"}
    assert lines["hidden_size"].endswith("# paper: 256; units of each layer")
    assert lines["batch_size"].split() == ["batch_size=24", "#", "paper", "3.1"]
    assert "* --vectors glove.txt " in shown.stdout
    given = [line[2:].split(" ")[0] for line in lines.values()]
    assert here(*TRAIN, "--preset", "paper", "--show", "--vectors", "glove.txt", *given).stdout == shown.stdout
    assert everything(tmp_path) == before


def test_the_default_preset_is_that_of_the_data(texts, tmp_path):
    imdb = write_labelled(tmp_path / "aclImdb", splits=["train", "test"])
    for data, preset in (([], "demo"), (["--data", texts], "fast"), (["--data", imdb], "paper")):
        shown = here(*TRAIN, *data, "--show", "--cell", "lstm").stdout
        assert shown.startswith(f"sentiment, preset {preset}\n")
        assert "lstm_init=uniform" in shown
        assert "zoneout" not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*TRAIN, "--preset", "papier"], "--preset papier: sentiment has demo, paper, fast."),
        ([*TRAIN, "lstm_init=orthogonal"], "lstm_init: qrnn has none; it belongs to lstm"),
        ([*TRAIN, "vectors=glove.txt"], "vectors: not a KEY; give --vectors glove.txt"),
        ([*TRAIN, "level=word"], "level: no such key"),
        ([*TRAIN, "max_length=0"], "max_length: must be at least 1, got 0"),
        ([*TRAIN, "max_vocabulary=2"], "max_vocabulary: must be at least 3, got 2"),
        ([*TRAIN, "l2=1e-6"], "l2: adamw has its own; give weight_decay, or optimizer=rmsprop"),
        (["train", "language-model", "--vectors", "glove.txt"], "--vectors: this task has none"),
        (["train", "language-model", "--vectors", "glove.txt", "--show"], "--vectors: this task has none"),
    ],
)
def test_wrong_requests_are_one_line_and_nothing_is_made(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in here(*arguments).mistake
    assert os.listdir(tmp_path) == []


GOOD = b"good\tgreat film\nbad\tdull film\n" * 3
BAD_DATA = {
    "nowhere": (None, "No such file or directory: 'data'"),
    "nothing": ({}, "data has no labelled texts under a known name; it holds no .tsv, .csv, .jsonl file"),
    "which": ({"a.tsv": GOOD, "b.tsv": GOOD}, "it holds a.tsv, b.tsv; say which is which: train=STEM"),
    "twice": ({"train.tsv": GOOD, "train.csv": b""}, "data holds train.tsv, train.csv; say which it is"),
    "empty": ({"train.tsv": b""}, "data/train.tsv:1: no labelled text in it. Was it copied whole?"),
    "blank": ({"train.jsonl": b"\n \n"}, "data/train.jsonl:1: no labelled text in it."),
    "no label": ({"train.tsv": GOOD + b"\tgreat\n"}, "data/train.tsv:7: the label is missing"),
    "no label in JSON": ({"train.jsonl": b'{"text": "great"}\n'}, "data/train.jsonl:1: the label is missing"),
    "no label in CSV": ({"train.csv": b"text,label\ngreat,\n"}, "data/train.csv:2: the label is missing"),
    "no columns": (
        {"train.tsv": GOOD + b"great film\n"},
        "data/train.tsv:7: expected 2 columns, label and text, got 1",
    ),
    "empty text": ({"train.tsv": GOOD + b"good\t<br />\n"}, "data/train.tsv:7: the text is empty; it has the label"),
    "one class": ({"train.tsv": b"good\tgreat\ngood\tgood\n"}, "data/train.tsv: all 2 texts have the label 'good'; a"),
    "unknown label": (
        {"train.tsv": GOOD, "valid.tsv": b"fair\tusual\n", "test.tsv": GOOD},
        "data/valid.tsv:1: the label 'fair' is not one of those in training: bad, good",
    ),
    "texts for labels": (
        {"train.tsv": b"".join(b"text %d\tgood\n" % n for n in range(101))},
        "101 texts have 101 different labels, such as 'text 0'. Are the columns in the order label, text?",
    ),
    "too few": ({"train.tsv": b"good\tgreat\nbad\tdull\n"}, "2 texts, 2 of them different, are too few to hold valid"),
    "NUL": ({"train.tsv": GOOD + b"good\ta\0\n"}, "data/train.tsv:7: byte 7 of the line is NUL."),
    "not UTF-8": (
        {"train.tsv": GOOD + b"good\t\xe9t\xe9\n"},
        "data/train.tsv:7: byte 6 of the line (0xe9) is not UTF-8",
    ),
    "UTF-16": ({"train.tsv": GOOD.decode().encode("utf-16")}, "data/train.tsv:1: byte 1 of the line is the start of"),
    "not JSON": ({"train.jsonl": b'{"label": "good", '}, "data/train.jsonl:1: not JSON: "),
}


@pytest.mark.parametrize(("files", "message"), BAD_DATA.values(), ids=BAD_DATA)
def test_guarantee_text_as_it_comes_training_on_bad_data_makes_nothing(tmp_path, monkeypatch, files, message):
    monkeypatch.chdir(tmp_path)
    if files is not None:
        Path("data").mkdir()
    for name, content in (files or {}).items():
        (Path("data") / name).write_bytes(content)
    before = everything(tmp_path)
    assert message in here(*TRAIN, "--data", "data", "--out", "run", *keys()).mistake
    assert everything(tmp_path) == before
    assert not Path("run").exists()


BAD_VECTORS = {
    "nowhere": ("none.txt", None, "No such file or directory: 'none.txt'"),
    "empty": ("v.txt", b"", "v.txt:1: no word vectors in it. Was it copied whole?"),
    "ragged": (
        "v.txt",
        b"the 1 2 3\nfilm 4 5\n",
        "v.txt:2: expected a word and 3 numbers, as on the first line, got 2",
    ),
    "another dimension": ("v.txt", b"the 1 2\n", "v.txt: its vectors have 2 numbers, the model wants 8. Another file"),
    "no numbers": ("v.txt", b"the 1 2\nfilm 1 x\n", "v.txt:2: 'x' is not a number"),
    "not finite": ("v.txt", b"the 1 nan\n", "v.txt:1: nan is not a finite number"),
    "not UTF-8": ("v.txt", b"the 1 2\n\xff 1 2\n", "v.txt:2: byte 1 of the line (0xff) is not UTF-8"),
    "other words": ("v.txt", b"zebra 1 2 3 4 5 6 7 8\n", "v.txt: none of its 1 words is one of the 12 of the texts"),
    "archive": ("v.zip", b"PK", "v.zip is an archive: unpack it first"),
    "no .npz": ("v.npz", b"PK\3\4 and nothing more", "v.npz: not a .npz of plain numbers ("),
}


@pytest.mark.parametrize(("name", "content", "message"), BAD_VECTORS.values(), ids=BAD_VECTORS)
def test_bad_vectors_are_one_line_and_nothing_is_made(texts, tmp_path, monkeypatch, name, content, message):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content)
    before = everything(tmp_path)
    assert message in here(*TRAIN, "--data", "texts", "--out", "run", "--vectors", name, *keys()).mistake
    assert everything(tmp_path) == before


def test_bad_arrays_of_vectors(texts, tmp_path):
    file = tmp_path / "v.npz"
    words = np.frombuffer(b"the\nfilm", np.uint8)
    for arrays, message in (
        ({"vectors": np.ones((2, 8))}, "expected the arrays vectors and words_utf8, got vectors"),
        ({"vectors": np.ones((3, 8)), "words_utf8": words}, "2 words and 3 vectors; must be equal"),
        ({"vectors": np.ones(2), "words_utf8": words}, "vectors must be real numbers, (N, D), got float64 of shape"),
        ({"vectors": np.array([{}, {}]), "words_utf8": words}, "not a .npz of plain numbers ("),
    ):
        np.savez(file, **arrays)
        mistake = here(*TRAIN, "--data", texts, "--out", tmp_path / "run", "--vectors", file, *keys()).mistake
        assert mistake.startswith(f"{file}: {message}")
    assert not (tmp_path / "run").exists()


def test_repeated_texts_are_a_note(tmp_path):
    rows = labelled_rows("train")
    write_rows(tmp_path / "texts" / "train.tsv", [*rows, rows[0], ("bad", rows[1][1])])
    write_rows(tmp_path / "texts" / "valid.tsv", [rows[2], *labelled_rows("valid")])
    result = here(*TRAIN, "--data", tmp_path / "texts", "--out", tmp_path / "run", *keys("max_steps=1"))
    assert result.code == 0
    notes = [line.removeprefix("Note: ") for line in result.stderr.splitlines() if line.startswith("Note: ")]
    assert notes[:2] == [
        "test: no such file, so held out of train (4 of 50 texts, the same share of every class, seed 1)",
        "train: 2 of 46 texts repeat another one; 1 texts have more than one label",
    ]
    assert "valid: 1 of 13 texts are in train as well" in notes


def test_the_test_set_is_touched_by_evaluate_alone(texts, tmp_path):
    (texts / "test.tsv").write_text("good\tgreat film\nsplendid\tgreat film\n")
    run = tmp_path / "run"
    assert here(*TRAIN, "--data", texts, "--out", run, *keys("epochs=1")).code == 0
    mistake = here("evaluate", run).mistake
    assert mistake == f"{texts}/test.tsv:2: the label 'splendid' is not one of those in training: bad, good"
    assert here("evaluate", run, "--split", "valid").code == 0
    (texts / "test.tsv").write_text("good\tgreat film\n")
    assert as_json("evaluate", run)["texts"] == 1
    assert here(*TRAIN, "--out", run, "--resume", "epochs=2").code == 0, "the test set is not what a run began with"


def test_what_was_held_out_is_found_again(texts, tmp_path):
    for name in ("valid.tsv", "test.tsv"):
        (texts / name).unlink()
    run = tmp_path / "run"
    assert here(*TRAIN, "--data", texts, "--out", run, *keys("seed=5")).code == 0
    best = max(r["accuracy"] for r in read_metrics(run / "metrics.jsonl") if r["event"] == "valid")
    figures = as_json("evaluate", run, "--split", "valid")
    assert figures["accuracy"] == pytest.approx(best)
    assert [sum(row) for row in figures["confusion"]] == [2, 2]
    by_split = {split: as_json("evaluate", run, "--split", split)["texts"] for split in ("train", "valid", "test")}
    assert by_split == {"train": 40, "valid": 4, "test": 4}


@pytest.mark.parametrize("suffix", [".txt", ".npz"])
def test_vectors_that_are_trained_on(texts, tmp_path, suffix):
    run, file = tmp_path / "run", tmp_path / f"vectors{suffix}"
    vectors = write_vectors(file)
    rate = "learning_rate=1e-6"
    result = here(*TRAIN, "--data", texts, "--vectors", file, "--out", run, *keys("max_steps=2", rate))
    assert "Note: vectors: 11 of 12 words (91.7%), " in result.stderr
    assert "words start at random" not in result.stderr
    training = read(run, "training.json")
    assert training["settings"]["vectors"] == str(file)
    assert training["corpus"]["vectors"]["dimension"] == 8
    great = load_file(run / "model.safetensors")["embedding.weight"][
        read(run, "vocabulary.json")["tokens"].index("great")
    ]
    assert great.tolist() != vectors["great"]
    assert great.tolist() == pytest.approx(vectors["great"], abs=1e-5)


def test_resume_refuses_other_vectors(texts, tmp_path):
    run, file = tmp_path / "run", tmp_path / "vectors.txt"
    write_vectors(file)
    assert here(*TRAIN, "--data", texts, "--vectors", file, "--out", run, *keys("epochs=1")).code == 0
    before = everything(run)
    for name, message in (
        ("other.txt", f"vectors: the run was started with {file}, not {tmp_path}/other.txt"),
        ("vectors.txt", "the word vectors have changed since the run was started (sha256 "),
        (None, f"No such file or directory: '{file}'"),
    ):
        other = ["--vectors", tmp_path / name] if name else []
        if name is None:
            file.unlink()
        elif name == "vectors.txt":
            file.write_text(file.read_text().replace(" 0.", " 1."))
        assert message in here(*TRAIN, "--out", run, "--resume", "epochs=2", *other).mistake
    assert everything(run) == before


@pytest.mark.parametrize(
    ("options", "more"),
    [
        (["--cell", "lstm"], ["lstm_init=orthogonal", "optimizer=rmsprop", "weight_decay=0", "l2=1e-4"]),
        (["--vectors", "vectors.npz"], ["kernel_size=3,1", "pooling=ifo", "max_length=5", "dense=no"]),
    ],
    ids=["lstm", "qrnn"],
)
def test_guarantee_exact_resume_in_three_parts(texts, tmp_path, monkeypatch, options, more):
    monkeypatch.chdir(tmp_path)
    write_vectors(tmp_path / "vectors.npz")
    begin = ["--data", "texts", *options, *keys("epochs=2", "schedule=constant", *more)]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert here(*TRAIN, "--out", whole, *begin).code == 0
    assert here(*TRAIN, "--out", parts, *begin, "max_steps=4").code == 0
    # Data and vectors are those of the run, and need not be named again.
    for limit in ("max_steps=7", "max_steps=none"):
        assert here(*TRAIN, "--out", parts, "--resume", limit).code == 0
    assert resumes(parts, checkpoint_every=5) == [4, 7]
    assert hashes(parts) == hashes(whole)
    assert series(parts)[-2:] == series(whole)[-2:]
    assert here("evaluate", parts, "--json").code == 0


def test_resume_refuses_what_is_not_the_run(own_sentiment, texts):
    before = everything(own_sentiment)
    mistake = here("train", "language-model", "--out", own_sentiment, "--resume").mistake
    assert mistake == f"{own_sentiment}: is a run of sentiment, not of language-model."
    mistake = here(*TRAIN, "--out", own_sentiment, "--resume", "--data", texts, "max_length=5", "epochs=9").mistake
    assert "--data: the run was started with " in mistake
    assert "max_length: the run was started with none, not 5" in mistake
    assert everything(own_sentiment) == before


CHECKPOINT_EVERY = 7
LONG = ("batch_size=2", "epochs=20", f"checkpoint_every={CHECKPOINT_EVERY}", "max_steps=300")


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.full)])
def test_guarantee_exact_resume_of_a_killed_training(texts, tmp_path, kills):
    whole, run = tmp_path / "whole", tmp_path / "run"
    begin = [*TRAIN, "--data", texts, *keys(*LONG)]
    targets = kill_at_random_moments(run, tmp_path / "output.txt", [*begin, "--out", run, "--resume"], kills)
    assert here(*TRAIN, "--out", run, "--resume").code == 0
    assert here(*begin, "--out", whole).code == 0
    assert hashes(run) == hashes(whole), f"killed at {targets}"
    assert series(run) == series(whole)
    assert len(resumes(run, CHECKPOINT_EVERY)) == kills


@pytest.mark.slow
@pytest.mark.full
def test_the_built_in_reviews_need_a_network_that_sees_order(tmp_path):
    """What the demo's table shows: the QRNN reads nearly all of the held-out reviews right, and bags do not."""
    run = tmp_path / "run"
    result = here(*TRAIN, "--out", run)
    assert result.code == 0, result.stderr
    assert read(run, "training.json")["preset"] == "demo"
    assert as_json("evaluate", run)["accuracy"] >= 97
    splits = labelled_corpus.load().splits
    train, valid, test = ((splits[name].ids, splits[name].labels) for name in ("train", "valid", "test"))
    for order, bar in ((1, 0.85), (2, 0.90)):
        assert accuracy(fit_best(train, valid, classes=2, order=order), *test) < bar
