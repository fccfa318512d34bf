"""Small things that a first try meets: each was found by trying."""

import json
import shutil
from pathlib import Path

import pytest

from cli.command import here
from tasks.tiny_sentiment import keys, write_labelled, write_vectors

SOURCE = Path(__file__).parents[2]


def test_word_vectors_are_one_file_by_any_of_its_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = write_labelled(tmp_path / "data")
    write_vectors(tmp_path / "v.npz")
    first = ("train", "sentiment", "--data", data, "--out", "run", "--vectors", "v.npz", *keys("max_steps=2"))
    assert here(*first).code == 0
    again = ("train", "sentiment", "--out", "run", "--resume", "max_steps=3", "--vectors")
    for path in ("./v.npz", tmp_path / "v.npz", "data/../v.npz"):
        assert here(*again, path).code == 0
    assert "the run was started with" in here(*again, "w.npz").mistake


def test_a_label_with_a_tab_is_one_column_of_the_table(own_sentiment):
    training = json.loads((own_sentiment / "training.json").read_text())
    training["corpus"]["classes"] = ["b\tad", "g\tood"]
    (own_sentiment / "training.json").write_text(json.dumps(training))
    for options in ((), ("--words",)):
        head, *lines = here("classify", own_sentiment, *options, "dull").stdout.splitlines()
        assert {line.count("\t") for line in lines} == {head.count("\t")}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("train", "sentiment", "--data", "dat/mine"), "--data dat/mine: not found. Did you mean data/mine?"),
        (("train", "sentiment", "--data", "./data/mime"), "--data ./data/mime: not found. Did you mean data/mine?"),
        (("train", "sentiment", "--data", "elsewhere"), "--data elsewhere: not found."),
        (("train", "sentiment", "--data", "data/mine", "--vectors", "glove.txt"), "glove.txt: not found."),
        (
            ("classify", "run", "--file", "data/mine/trian.tsv"),
            "data/mine/trian.tsv: not found. Did you mean data/mine/",
        ),
        (("classify", "ruin", "dull"), "ruin: no such folder. Did you mean run?"),
        (("classify", "nowhere", "dull"), "nowhere: no such folder. `quasirnn train` creates runs"),
        (("classify", "run", "--file", "data"), "data: is a directory."),
    ],
)
def test_files_that_are_missing_are_told_in_our_words_as_typed(tmp_path, monkeypatch, tiny_sentiment, typed, said):
    monkeypatch.chdir(tmp_path)
    write_labelled(tmp_path / "data" / "mine")
    shutil.copytree(tiny_sentiment / "qrnn", tmp_path / "run")
    mistake = here(*typed).mistake
    assert mistake.startswith(said)
    assert "Errno" not in mistake


def test_equal_is_said_of_what():
    """Units or parameters: "of equal size" could mean either."""
    files = [*SOURCE.glob("src/**/*.py"), *SOURCE.glob("docs/**/*.md"), SOURCE / "README.md"]
    assert not [file for file in files if "of equal size" in file.read_text()]
