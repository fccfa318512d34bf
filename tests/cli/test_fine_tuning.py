"""`quasirnn train TASK --from RUN` from the first word to the last."""

import json
import shutil

import pytest

from cli.command import as_json, here
from tasks.tiny_sentiment import THREE, keys, write_labelled

TRAIN = ("train", "sentiment")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`run`, trained on `two` classes; `three` has more."""
    folder = tmp_path_factory.mktemp("fine-tuning")
    assert here(*TRAIN, "--data", write_labelled(folder / "two"), "--out", folder / "run", *keys()).code == 0
    write_labelled(folder / "three", classes=THREE)
    return folder


def test_a_classifier_of_two_classes_becomes_one_of_three(folder, tmp_path):
    mine = tmp_path / "mine"
    start = (*TRAIN, "--from", folder / "run", "--data", folder / "three")
    result = here(*start, "--out", mine, "epochs=25", "learning_rate=0.03")
    assert result.code == 0
    assert f"Note: vocabulary: the 14 tokens of {folder / 'run'} and 1 new ones of the training text" in result.stderr
    assert f"Note: weights: those of {folder / 'run'}, all but output, which is initialised anew" in result.stderr
    assert "vectors:" not in result.stderr
    assert as_json("classify", mine, "the usual film")["items"][0]["label"] == "fair"
    assert as_json("evaluate", mine)["accuracy"] > 80


def test_it_goes_on_after_its_source_is_gone(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "source")
    mine = tmp_path / "mine"
    assert here(*TRAIN, "--from", tmp_path / "source", "--data", folder / "two", "--out", mine, "epochs=1").code == 0
    shutil.rmtree(tmp_path / "source")
    result = here(*TRAIN, "--out", mine, "--resume", "epochs=2")
    assert result.code == 0
    assert "Resumed at step 3." in result.stderr
    assert json.loads((mine / "training.json").read_text())["corpus"]["init_from"]["new_tokens"] == 0


def test_show_marks_what_is_the_sources(folder):
    result = here(*TRAIN, "--from", folder / "run", "--data", folder / "two", "--show", "zoneout=0.2")
    assert result.code == 0
    lines = result.stdout.splitlines()
    assert lines[0].endswith(f"as in {folder / 'run'} where marked <")
    by_key = {line[2:].split("=")[0].split(" ")[0]: line for line in lines[1:] if line[2:]}
    assert by_key["hidden_size"].startswith("< hidden_size=8 ")
    assert by_key["--cell"].startswith("< --cell qrnn ")
    assert by_key["zoneout"].startswith("* zoneout=0.2 ")
    assert by_key["--from"].startswith(f"* --from {folder / 'run'} ")
    assert by_key["learning_rate"].startswith("= learning_rate=0.001 ")
    assert "a third, with --from" in by_key["learning_rate"]


def test_seeds_follow_the_sources_cell(folder, tmp_path):
    lstm, mine = tmp_path / "lstm", tmp_path / "mine"
    short = keys("max_steps=2", cell="lstm")
    assert here(*TRAIN, "--data", folder / "two", "--out", lstm, "--cell", "lstm", *short).code == 0
    several = here(*TRAIN, "--from", lstm, "--data", folder / "two", "--seeds", "1,2", "--out", mine, "max_steps=2")
    assert several.code == 0, several
    assert {path.name for path in mine.iterdir() if path.is_dir()} == {"lstm-1", "lstm-2"}


def test_mistakes_are_one_line_and_nothing_is_made(folder, tmp_path):
    start = (*TRAIN, "--data", folder / "two", "--out", tmp_path / "mine")
    assert here(*start, "--from", tmp_path / "nowhere").mistake.startswith(f"{tmp_path / 'nowhere'}: no such folder.")
    assert "hidden_size: " in here(*start, "--from", folder / "run", "hidden_size=9").mistake
    other = here("train", "language-model", "--from", folder / "run", "--data", folder / "two")
    assert other.mistake == f"--from {folder / 'run'}: is a sentiment run, not a language-model run."
    assert not (tmp_path / "mine").exists()


def test_help_has_an_example():
    assert "--from runs/imdb" in here("train", "--help").stdout
