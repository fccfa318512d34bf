import hashlib
from pathlib import Path

import pytest

from quasirnn.data.corpus import Part, finish_line, join

ROWS = Part({"label": ["a", "b", "a"], "text": ["x", "y", "z"]}, (Path("rows.tsv"),))


def test_rows_of_a_part():
    assert (len(ROWS), ROWS["text"]) == (3, ["x", "y", "z"])
    assert ROWS.select([2, 0]) == Part({"label": ["a", "a"], "text": ["z", "x"]}, ROWS.files)
    more = Part({"label": ["c"], "text": ["w"]}, (Path("more.tsv"),))
    assert join([ROWS, more]) == Part(
        {"label": ["a", "b", "a", "c"], "text": ["x", "y", "z", "w"]}, (Path("rows.tsv"), Path("more.tsv"))
    )
    assert join([ROWS]) is ROWS


@pytest.mark.parametrize(
    "other",
    [
        {"label": ["b", "a", "a"], "text": ["y", "x", "z"]},
        {"label": ["ax", "b", "a"], "text": ["", "y", "z"]},
        {"label": ["a", "b", "a"], "text": ["x", "y", "Z"]},
    ],
    ids=["other order", "torn", "other text"],
)
def test_the_hash_is_of_all_rows_in_their_order(other):
    assert ROWS.sha256 == Part(dict(ROWS.columns)).sha256
    assert ROWS.sha256 != Part(other).sha256


def test_running_text_and_its_hash():
    assert [finish_line(text) for text in ("", "a", "a\n")] == ["", "a\n", "a\n"]
    assert Part({"text": ["a", "b\n", "c"]}).text == "a\nb\nc"
    # Longer than one piece of the hash, with a character of three bytes.
    long = "some €\n" * 400_000
    assert Part({"text": [long]}).sha256 == hashlib.sha256(long.encode()).hexdigest()
