"""`quasirnn train translation`: paired files of every kind, and what is held or left out."""

import sys
from pathlib import Path

import pytest

from cli.command import as_json, here, read, train_built_in
from quasirnn.data.iwslt_xml import read_segments
from quasirnn.training.run_log import read_metrics
from tasks.tiny_translation import keys, paired_rows, write_paired, write_pairs
from training.tiny import hashes

TRAIN = ("train", "translation")


@pytest.fixture
def pairs(tmp_path):
    return write_paired(tmp_path / "pairs")


def test_scores_of_a_sample_as_large_as_validation(pairs, tmp_path):
    run = tmp_path / "run"
    assert here(*TRAIN, "--data", pairs, "--out", run, *keys("epochs=1", "sample=8")).code == 0
    (valid,) = [record for record in read_metrics(run / "metrics.jsonl") if record["event"] == "valid"]
    figures = as_json("evaluate", run, "--split", "valid", "--beam", 1)
    for name in ("bleu", "chrf", "exact_match"):
        assert figures[name] == pytest.approx(valid[name])


def test_what_is_left_out_and_what_is_on_both_sides_is_said(tmp_path):
    rows = paired_rows("train")
    write_pairs(tmp_path / "pairs", "train", [*rows, ("c" * 31, "do"), ("c", ""), (" ", "do"), ("c", "d" * 31)])
    valid = [rows[0], ("ü", "do ré mi"), *paired_rows("valid")]
    write_pairs(tmp_path / "pairs", "valid", valid)
    write_pairs(tmp_path / "pairs", "test", paired_rows("test"))
    arguments = keys("max_steps=1", "max_length=30", "min_count=2", "sample=0")
    result = here(*TRAIN, "--data", tmp_path / "pairs", "--out", tmp_path / "run", *arguments)
    assert result.code == 0
    assert result.notes == [
        "train: 2 of 164 pairs of train left out because a side is empty",
        "train: 2 of 162 pairs left out because a side has more than max_length = 30 characters",
        "valid: 1 of 10 target sentences also occur in train",
        f"valid: 1 of {sum(len(side) for row in valid for side in row)} tokens (0.7%) are not in the vocabulary "
        f"and are read as \ufffd",
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
    assert result.notes == [
        "pairs: no file for valid and test, so held out of train (32 of 320 pairs, no target in two splits, seed 5)"
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


@pytest.mark.slow
@pytest.mark.full
def test_the_built_in_pairs_are_learned(tmp_path):
    """What the demo's table shows: most of the numbers, dates and times that were held out are right to the letter."""
    run = train_built_in("translation", tmp_path / "run")
    assert as_json("evaluate", run, "--beam", 1)["exact_match"] >= 80
