"""`quasirnn train translation`: paired files of every kind, mistakes in them, and exact resuming."""

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from cli.command import SCRIPT, Process, as_json, everything, here
from cli.interrupted import kill_at_random_moments, resumes, steps_saved
from quasirnn.data.iwslt_xml import read_segments
from quasirnn.tasks.training_run import Request, train
from quasirnn.tasks.translation import TASK as TRANSLATION
from quasirnn.tasks.translation import TranslationSettings
from quasirnn.training.metrics import read_metrics
from tasks.tiny_translation import keys, paired_rows, train_runs, write_paired, write_pairs
from training.tiny import hashes, series

TRAIN = ("train", "translation")


@pytest.fixture
def pairs(tmp_path):
    return write_paired(tmp_path / "pairs")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_runs(tmp_path_factory.getbasetemp() / "translation")


def read(run: Path, name: str) -> dict:
    return json.loads((run / name).read_text())


def notes(stderr: str) -> list[str]:
    return [line.removeprefix("Note: ") for line in stderr.splitlines() if line.startswith("Note: ")]


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_a_run_folder_is_complete(pairs, tmp_path, cell):
    run = tmp_path / "a run"
    result = here(*TRAIN, "--data", pairs, "--out", run, "--cell", cell, *keys("epochs=2", cell=cell))
    assert (result.code, result.stdout) == (0, "")

    training = read(run, "training.json")
    assert (training["task"], training["preset"], training["data"]) == ("translation", "fast", [str(pairs)])
    assert set(training["settings"]) == set(TranslationSettings.model_fields)
    assert training["settings"]["cell"] == read(run, "config.json")["cell"] == cell
    assert {name: split["pairs"] for name, split in training["corpus"]["splits"].items()} == {"train": 160, "valid": 8}
    vocabulary = read(run, "vocabulary.json")
    assert vocabulary["kind"] == "character"
    assert set(vocabulary["specials"]) == {"padding", "start", "end", "unknown"}

    # The loss on all of validation after each epoch, and scores on a sample of it.
    records = read_metrics(run / "metrics.jsonl")
    valid = [record for record in records if record["event"] == "valid"]
    assert [record["epoch"] for record in valid] == [1, 2]
    assert [record["event"] for record in records if record["event"] != "train"] == ["start", "valid", "valid", "stop"]
    for record in valid:
        assert record["loss"] > 0
        assert all(0 <= record[name] <= 100 for name in ("bleu", "chrf", "exact_match"))
    last = valid[-1]

    assert f"translation, preset fast: {cell.upper()}, 2 layers of 16, " in result.stderr
    assert " parameters; pairs: train 160, valid 8 pairs, vocabulary " in result.stderr
    assert notes(result.stderr) == []
    assert f"validation loss {last['loss']:.5g}, bleu {last['bleu']:.5g}, chrf {last['chrf']:.5g}" in result.stderr

    _, _, following = result.stderr.partition("Next:\n")
    commands = [shlex.split(line) for line in following.splitlines()]
    assert [command[1] for command in commands] == ["evaluate", "translate"]
    for program, *arguments in commands:
        assert Path(program).resolve() == Path(SCRIPT).resolve()
        assert here(*arguments).code == 0


def test_figures_of_validation_are_those_of_evaluate(runs):
    """The best model is the one that is kept; greedy on all of validation, if the sample is as large."""
    for cell in ("qrnn", "lstm"):
        valid = [record for record in read_metrics(runs / cell / "metrics.jsonl") if record["event"] == "valid"]
        best = min(record["loss"] for record in valid)
        assert as_json("evaluate", runs / cell, "--split", "valid")["loss"] == pytest.approx(best, rel=1e-6)
        assert valid[-1]["loss"] < valid[0]["loss"]


def test_scores_of_a_sample_as_large_as_validation(pairs, tmp_path):
    run = tmp_path / "run"
    assert here(*TRAIN, "--data", pairs, "--out", run, *keys("epochs=1", "sample=8")).code == 0
    (valid,) = [record for record in read_metrics(run / "metrics.jsonl") if record["event"] == "valid"]
    figures = as_json("evaluate", run, "--split", "valid", "--beam", 1)
    for name in ("bleu", "chrf", "exact_match"):
        assert figures[name] == pytest.approx(valid[name])


def test_the_same_command_gives_the_same_run(pairs, tmp_path):
    for name, seed in (("one", 1), ("two", 1), ("other", 2)):
        arguments = ["--data", pairs, "--out", tmp_path / name, *keys("epochs=1", "max_steps=9", f"seed={seed}")]
        assert here(*TRAIN, *arguments).code == 0
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")
    assert series(tmp_path / "one") == series(tmp_path / "two")
    assert hashes(tmp_path / "other") != hashes(tmp_path / "one")


def test_a_training_ends_with_its_curves(pairs, tmp_path):
    asked = Request(data=[str(pairs)], out=tmp_path / "run", overrides=keys("max_steps=3"))
    assert train(TRANSLATION, asked).outcome.best is not None
    assert (tmp_path / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_show_prints_every_key_as_it_could_be_given_and_makes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = here(*TRAIN, "--preset", "paper", "--show", "hidden_size=256")
    assert (shown.code, shown.stderr) == (0, "")
    assert shown.stdout.startswith("translation, preset paper, changed where marked *\n")
    lines = {line[2:].split("=")[0]: line for line in shown.stdout.splitlines() if "=" in line.split("#")[0]}
    assert set(lines) == set(TranslationSettings.model_fields) - {"cell"}
    assert lines["hidden_size"].endswith("# paper: 320; units of each layer")
    assert lines["batch_size"].split() == ["batch_size=16", "#", "paper", "3.3"]
    assert lines["kernel_size"].split()[0] == "kernel_size=6,2,2,2"
    given = [line[2:].split(" ")[0] for line in lines.values()]
    assert here(*TRAIN, "--preset", "paper", "--show", *given).stdout == shown.stdout
    assert "dropout=0.2" in here(*TRAIN, "--preset", "paper", "--cell", "lstm", "--show").stdout
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*TRAIN, "--preset", "papier"], "--preset papier: translation has demo, paper, fast."),
        ([*TRAIN, "source=en"], "target: must be another language than source=en"),
        ([*TRAIN, "source=fr"], "the built-in translations are from de to en, not from fr to en; name a folder of"),
        ([*TRAIN, "level=word"], "level: no such key"),
        ([*TRAIN, "max_length=0"], "max_length: must be at least 1, got 0"),
        ([*TRAIN, "max_vocabulary=4"], "max_vocabulary: must be at least 5, got 4"),
        ([*TRAIN, "sample=-1"], "sample: must be at least 0, got -1"),
        ([*TRAIN, "l2=1e-6"], "l2: adamw has its own; give weight_decay, or optimizer=adam"),
        ([*TRAIN, "kernel_size=6"], None),
        ([*TRAIN, "kernel_size=6,2,2"], "kernel_size: 3 widths for num_layers=2; give one per layer, or one for all"),
        ([*TRAIN, "--cell", "lstm", "zoneout=0.1"], "zoneout: lstm has none; it belongs to qrnn"),
        ([*TRAIN, "--vectors", "glove.txt"], "--vectors: this task has none"),
        ([*TRAIN, "epochs=0"], "epochs"),
    ],
)
def test_wrong_requests_are_one_line_and_nothing_is_made(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    if message is None:
        assert here(*arguments, "--show").code == 0
    else:
        assert message in here(*arguments).mistake
    assert os.listdir(tmp_path) == []


GOOD = {"train.de": b"c\nd\ne\n", "train.en": "do\nré\nmi\n".encode()}
PARTS = {"valid.de": b"c d\n", "valid.en": b"do r\n", "test.de": b"c e\n", "test.en": b"do mi\n"}
BAD_DATA = {
    "nowhere": (None, [], "No such file or directory: 'data'"),
    "nothing": (
        {},
        [],
        "data has no pairs of de and en, such as train.de and train.en, or train.tsv; it holds no file",
    ),
    "one language": (
        {"train.de": b"c\n"},
        [],
        "data has no pairs of de and en, such as train.de and train.en, or train.tsv; it holds train.de. Other "
        "languages: source=LANGUAGE target=LANGUAGE",
    ),
    "other languages": (GOOD, ["source=fr", "target=en"], "data has no pairs of fr and en, such as train.fr and "),
    "the same language": (GOOD, ["source=en"], "target: must be another language than source=en"),
    "no training part": (
        {"test.de": b"c\n", "test.en": b"do\n"},
        [],
        "data has no training part; it holds test; say which is which: train=STEM valid=STEM test=STEM",
    ),
    "no such stem": (GOOD, ["train=big"], "train=big: data has no files of that name; it holds train"),
    "twice": (GOOD | {"train.tsv": b"c\tdo\n"}, [], "data holds train, train.tsv; say which it is: train=train or "),
    "archive": ({"corpus.tgz": b""}, [], "data has no pairs of de and en"),
    "other numbers of lines": (
        PARTS | {"train.de": b"c\nd\n", "train.en": b"do\n"},
        [],
        "data/train.de has 2 lines of text and data/train.en has 1; both must have as many, as each translates the ",
    ),
    "empty": (PARTS | {"train.de": b"", "train.en": b""}, [], "data/train.de:1: no pair of sentences in it. Was it "),
    "empty sides": (
        PARTS | {"train.de": b"c\n\n", "train.en": b"\ndo\n"},
        [],
        "data/train.de: all of its 2 pairs have an empty side",
    ),
    "empty sides of validation": (
        GOOD | PARTS | {"valid.en": b" \n"},
        [],
        "data/valid.de: all of its 1 pairs have an empty side",
    ),
    "all too long": (
        GOOD | PARTS,
        ["max_length=1"],
        "data/train.de: every pair has a side of more than max_length = 1 characters",
    ),
    "too few": (
        {"train.de": b"c\nd\n", "train.en": b"do\nr\n"},
        [],
        "data: 2 pairs are too few to hold valid and test out. Give files of their own, or say which they are: ",
    ),
    "NUL": (GOOD | {"train.de": b"c\nd\0\ne\n"}, [], "data/train.de:2: byte 2 of the line is NUL."),
    "not UTF-8": (
        GOOD | {"train.en": b"do\nr\xe9\nmi\n"},
        [],
        "data/train.en:2: byte 2 of the line (0xe9) is not UTF-8",
    ),
    "UTF-16": (
        GOOD | {"train.de": "c\nd\ne\n".encode("utf-16")},
        [],
        "data/train.de:1: byte 1 of the line is the start of UTF-16",
    ),
    "columns": ({"train.tsv": b"c\tdo\nd\n"}, [], "data/train.tsv:2: expected 2 columns, source and target, got 1."),
    "too many columns": ({"train.tsv": b"c\tdo\t1\n"}, [], "data/train.tsv:1: expected 2 columns, source and target, "),
    "no XML": (
        {"train.de.xml": b"<seg>c</seg", "train.en.xml": b"<seg>do</seg>"},
        [],
        "data/train.de.xml:1: not XML: ",
    ),
}


@pytest.mark.parametrize(("files", "more", "message"), BAD_DATA.values(), ids=BAD_DATA)
def test_guarantee_text_as_it_comes_training_on_bad_data_makes_nothing(tmp_path, monkeypatch, files, more, message):
    monkeypatch.chdir(tmp_path)
    if files is not None:
        Path("data").mkdir()
    for name, content in (files or {}).items():
        (Path("data") / name).write_bytes(content)
    before = everything(tmp_path)
    assert message in here(*TRAIN, "--data", "data", "--out", "run", *keys(*more)).mistake
    assert everything(tmp_path) == before
    assert not Path("run").exists()


def test_what_is_left_out_and_what_is_on_both_sides_is_said(tmp_path):
    rows = paired_rows("train")
    write_pairs(tmp_path / "pairs", "train", [*rows, ("c" * 31, "do"), ("c", ""), (" ", "do"), ("c", "d" * 31)])
    valid = [rows[0], ("ü", "do ré mi"), *paired_rows("valid")]
    write_pairs(tmp_path / "pairs", "valid", valid)
    write_pairs(tmp_path / "pairs", "test", paired_rows("test"))
    arguments = keys("max_steps=1", "max_length=30", "min_count=2", "sample=0")
    result = here(*TRAIN, "--data", tmp_path / "pairs", "--out", tmp_path / "run", *arguments)
    assert result.code == 0
    assert notes(result.stderr) == [
        "train: 2 of 164 pairs of train left out, as a side is empty",
        "train: 2 of 162 pairs left out, as a side has more than max_length = 30 characters",
        "valid: 1 of 10 target sentences are in train as well",
        f"valid: 1 of {sum(len(side) for row in valid for side in row)} characters are not in the vocabulary, and are "
        f"read as unknown",
    ]
    assert read(tmp_path / "run", "training.json")["corpus"]["splits"]["train"]["pairs"] == 160


def as_tsv(folder: Path) -> Path:
    folder.mkdir()
    for split in ("train", "valid", "test"):
        lines = [f"{number}\t{target}\t{source}\n" for number, (source, target) in enumerate(paired_rows(split))]
        (folder / f"{split}.tsv").write_text("number\ten\tde\n" + "".join(lines), encoding="utf-8")
    return folder


def as_crlf(folder: Path) -> Path:
    """Byte order marks and line ends of another system."""
    folder.mkdir()
    for split in ("train", "valid", "test"):
        for language, side in zip(("de", "en"), zip(*paired_rows(split), strict=True), strict=True):
            (folder / f"{split}.{language}").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(side).encode())
    return folder


def as_iwslt(folder: Path) -> Path:
    """As IWSLT publishes it: tags in the training text, and XML."""
    folder.mkdir()
    for number, (language, side) in enumerate(zip(("de", "en"), zip(*paired_rows("train"), strict=True), strict=True)):
        head = "<url>http://x</url>\n<title>Left &amp; out</title>\n" + "<translator>N. N.</translator>\n" * number
        text = head + "".join(f" {line} \n" for line in side)
        (folder / f"train.tags.de-en.{language}").write_text(text, encoding="utf-8")
    for name, split in (("tst2013", "valid"), ("tst2014", "test"), ("tst2010", "test")):
        for language, side in zip(("de", "en"), zip(*paired_rows(split), strict=True), strict=True):
            segments = "".join(f'<seg id="{n}"> {line} </seg>\n' for n, line in enumerate(side, 1))
            file = folder / f"IWSLT16.TED.{name}.de-en.{language}.xml"
            file.write_text(f"<mteval><doc><title>x</title>\n{segments}</doc></mteval>\n", encoding="utf-8")
            assert len(read_segments(file)) == len(side)
    return folder


@pytest.mark.parametrize(("write", "preset"), [(as_tsv, "fast"), (as_crlf, "fast"), (as_iwslt, "paper")])
def test_every_kind_of_file_trains_the_same_run(pairs, tmp_path, write, preset):
    """By the preset that is usual for it, but for the keys."""
    data, short = write(tmp_path / "other"), keys("max_steps=5", "sample=0")
    result = here(*TRAIN, "--data", data, "--out", tmp_path / "run", *short)
    assert result.code == 0, result.stderr
    training = read(tmp_path / "run", "training.json")
    assert training["preset"] == preset
    assert training["corpus"]["name"] == ("iwslt" if preset == "paper" else "other")
    assert here(*TRAIN, "--data", pairs, "--preset", preset, "--out", tmp_path / "plain", *short).code == 0
    assert training["corpus"]["sha256"] == read(tmp_path / "plain", "training.json")["corpus"]["sha256"]
    assert hashes(tmp_path / "run") == hashes(tmp_path / "plain")
    figures, plain = (as_json("evaluate", tmp_path / name, "--beam", 1) for name in ("run", "plain"))
    assert figures["pairs"] == 12
    assert [figures[name] for name in ("bleu", "chrf", "loss")] == [plain[name] for name in ("bleu", "chrf", "loss")]


def test_the_other_direction_and_named_stems(tmp_path):
    folder = tmp_path / "pairs"
    for stem, split in (("songs", "train"), ("tunes", "valid"), ("hymns", "test")):
        write_pairs(folder, stem, paired_rows(split), ("a", "b"))
    stems = ["train=songs", "valid=tunes", "test=hymns"]
    run = tmp_path / "run"
    short = keys("max_steps=2", "sample=0", "source=b", "target=a", *stems)
    assert here(*TRAIN, "--data", folder, "--out", run, *short).code == 0
    corpus = read(run, "training.json")["corpus"]
    assert (corpus["source"], corpus["target"]) == ("b", "a")
    assert corpus["splits"]["train"]["characters"] == [
        sum(len(row[side]) for row in paired_rows("train")) for side in (1, 0)
    ]
    assert as_json("evaluate", run, "--beam", 1)["pairs"] == 12


def test_what_was_held_out_is_found_again(tmp_path):
    """No target sentence is on both sides, and `evaluate` reads what training has not."""
    rows = [(f"{source} {way}", target) for source, target in paired_rows("train") for way in "cd"]
    write_pairs(tmp_path / "pairs", "train", rows)
    run = tmp_path / "run"
    result = here(*TRAIN, "--data", tmp_path / "pairs", "--out", run, *keys("max_steps=3", "sample=0", "seed=5"))
    assert notes(result.stderr) == [
        "pairs: no valid or test, so held out of its train (32 of 320 pairs, no target sentence on both sides, seed 5)"
    ]
    best = min(record["loss"] for record in read_metrics(run / "metrics.jsonl") if record["event"] == "valid")
    figures = {name: as_json("evaluate", run, "--split", name, "--beam", 1) for name in ("train", "valid", "test")}
    assert figures["valid"]["loss"] == pytest.approx(best, rel=1e-6)
    assert {name: each["pairs"] for name, each in figures.items()} == {"train": 288, "valid": 16, "test": 16}


def test_the_test_set_is_touched_by_evaluate_alone(pairs, tmp_path):
    (pairs / "test.en").write_bytes(b"do\n")
    run = tmp_path / "run"
    assert here(*TRAIN, "--data", pairs, "--out", run, *keys("max_steps=2", "sample=0")).code == 0
    assert here("evaluate", run).mistake.startswith(f"{pairs}/test.de has 12 lines of text and {pairs}/test.en has 1;")
    assert here("evaluate", run, "--split", "valid", "--beam", 1).code == 0
    write_pairs(pairs, "test", paired_rows("test")[:3])
    assert as_json("evaluate", run, "--beam", 1)["pairs"] == 3
    assert here(*TRAIN, "--out", run, "--resume", "max_steps=3").code == 0, "the test set is not what a run began with"


def test_without_sacrebleu_nothing_is_begun_unless_no_bleu_is_asked_for(pairs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    arguments = [*TRAIN, "--data", pairs, "--out", tmp_path / "run"]
    assert here(*arguments, *keys()).mistake == "BLEU needs sacrebleu: pip install 'quasirnn[translate]'"
    assert not (tmp_path / "run").exists()
    assert here(*arguments, *keys("sample=0", "max_steps=1")).code == 0
    assert here("evaluate", tmp_path / "run").mistake == "BLEU needs sacrebleu: pip install 'quasirnn[translate]'"
    assert here("translate", tmp_path / "run", "c", "--beam", 1).code == 0


# Resuming.


def test_resume_refuses_what_is_not_the_run(pairs, tmp_path):
    run = tmp_path / "run"
    assert here(*TRAIN, "--data", pairs, "--out", run, *keys("max_steps=2", "sample=0")).code == 0
    before = everything(run)
    assert here("train", "sentiment", "--out", run, "--resume").mistake == (
        f"{run}: is a run of translation, not of sentiment."
    )
    mistake = here(*TRAIN, "--out", run, "--resume", "--data", tmp_path, "max_length=5", "target=fr").mistake
    assert "--data: the run was started with " in mistake
    assert "max_length: the run was started with 300, not 5" in mistake
    assert "target: the run was started with en, not fr" in mistake
    assert here(*TRAIN, "--out", run, "--resume", "--cell", "lstm").code == 2

    rows = paired_rows("train")
    for change in (
        lambda: write_pairs(pairs, "train", [*rows[:-1], ("c c c c", "do")]),
        # The same characters, pairs in another order: the steps would be others.
        lambda: write_pairs(pairs, "train", rows[::-1]),
        lambda: write_pairs(pairs, "valid", paired_rows("valid")[:-1]),
    ):
        write_paired(pairs)
        change()
        assert here(*TRAIN, "--out", run, "--resume", "max_steps=4").mistake.startswith(
            f"{run}: the data have changed since the run was started (sha256 "
        )
    (pairs / "train.en").unlink()
    assert here(*TRAIN, "--out", run, "--resume", "max_steps=4").code == 2
    assert everything(run) == before
    write_paired(pairs)
    assert here(*TRAIN, "--out", run, "--resume", "max_steps=4").code == 0


@pytest.mark.parametrize(
    ("cell", "more"),
    [
        ("lstm", ["dropout=0.2", "optimizer=adam", "weight_decay=0", "l2=1e-4"]),
        ("qrnn", ["dropout=0.2", "zoneout=0.1", "pooling=ifo", "lowercase=yes"]),
    ],
)
def test_guarantee_exact_resume_in_three_parts(pairs, tmp_path, cell, more):
    begin = ["--data", pairs, "--cell", cell, *keys("max_steps=30", "schedule=constant", "sample=2", *more, cell=cell)]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert here(*TRAIN, "--out", whole, *begin).code == 0
    assert here(*TRAIN, "--out", parts, *(word for word in begin if word != "max_steps=30"), "max_steps=13").code == 0
    # The data are those of the run, and need not be named again. The epoch has 20 steps.
    for limit in ("max_steps=20", "max_steps=30"):
        assert here(*TRAIN, "--out", parts, "--resume", limit).code == 0
    assert resumes(parts, checkpoint_every=10) == [13, 20]
    assert hashes(parts) == hashes(whole)
    assert series(parts)[-1] == series(whole)[-1]


CHECKPOINT_EVERY = 7
LONG = keys(
    "hidden_size=8",
    "batch_size=4",
    "epochs=20",
    f"checkpoint_every={CHECKPOINT_EVERY}",
    "max_steps=220",
    "sample=1",
    "dropout=0.1",
)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.full)])
def test_guarantee_exact_resume_of_a_training_that_is_stopped_and_then_killed(pairs, tmp_path, kills):
    """SIGTERM first, which saves and says how to go on, and then SIGKILL at any moment."""
    whole, run, output = tmp_path / "whole", tmp_path / "run", tmp_path / "output.txt"
    begin = [*TRAIN, "--data", pairs, *LONG]
    process = Process(output, *begin, "--out", run)
    process.wait_for(lambda: steps_saved(run) >= 7)
    process.popen.send_signal(signal.SIGTERM)
    assert process.wait() == 0, process.output
    stopped = steps_saved(run)
    lines = process.output.splitlines()
    told, command = lines[lines.index(next(line for line in lines if line.startswith("Stopped"))) :][:2]
    assert told == f"Stopped and saved at step {stopped:,}. Go on with:"
    program, *arguments = shlex.split(command)
    assert Path(program).resolve() == Path(SCRIPT).resolve()

    targets = kill_at_random_moments(run, output, arguments, kills)
    assert here(*arguments).code == 0
    assert here(*begin, "--out", whole).code == 0
    assert hashes(run) == hashes(whole), f"stopped at {stopped}, killed at {targets}"
    assert series(run) == series(whole)
    begun = resumes(run, CHECKPOINT_EVERY)
    assert begun[0] == stopped
    assert len(begun) == kills + 1


@pytest.mark.slow
@pytest.mark.full
def test_the_built_in_pairs_are_learned(tmp_path):
    """What the demo's table shows: most of the numbers, dates and times that were held out are right to the letter."""
    run = tmp_path / "run"
    result = here(*TRAIN, "--out", run)
    assert result.code == 0, result.stderr
    assert read(run, "training.json")["preset"] == "demo"
    assert as_json("evaluate", run, "--beam", 1)["exact_match"] >= 80
