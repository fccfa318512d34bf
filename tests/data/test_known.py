import hashlib
from dataclasses import replace

import pytest

from data.shapes import LABELLED, RUNNING
from quasirnn.data import known
from quasirnn.data.corpus import Part
from quasirnn.data.known import COUNTS, LabelCounts, TextCounts, mismatch
from quasirnn.data.sources import find


@pytest.mark.parametrize(("name", "split"), [(name, split) for name in COUNTS for split in COUNTS[name]])
def test_a_difference_is_one_line_with_both_figures(monkeypatch, name, split):
    expected = COUNTS[name][split]
    kind, part = type(expected), Part({"text": [""]})
    monkeypatch.setattr(kind, "of", lambda part: expected)
    assert mismatch(name, split, part) is None
    one_less = {"texts" if kind is LabelCounts else "lines": expected.size - 1}
    monkeypatch.setattr(kind, "of", lambda part: replace(expected, **one_less))
    line = mismatch(name, split, part)
    assert line.startswith(f"differs from the published {name}: its {split} has {expected.size:,} ")
    assert f"{expected}; this one has {expected.size - 1:,} " in line
    assert line.endswith(f"{expected.distinct:,} distinct. Is it incomplete?")
    monkeypatch.setattr(kind, "of", lambda part: replace(expected, distinct=1))
    assert mismatch(name, split, part).endswith(", 1 distinct."), "not cut short"
    assert mismatch(name, "hard", part) is None


def test_counts_worked_by_hand():
    assert TextCounts.of(Part({"text": [" a b <unk>\n a b"]})) == TextCounts(lines=2, tokens=7, distinct=3)
    labels = LabelCounts.of(Part({"label": ["pos", "neg", "pos"], "text": ["a", "b", "a"]}))
    assert labels == LabelCounts(3, {"neg": 1, "pos": 2}, 2)
    assert str(labels) == "3 texts (neg 1, pos 2), 2 distinct"
    many = [f"class {number:02}" for number in range(30)]
    assert str(LabelCounts.of(Part({"label": many, "text": many}))).endswith(
        "class 06 1, class 07 1, ...), 30 distinct"
    )


def test_recognised_by_its_bytes_whatever_its_name(write, monkeypatch):
    text = b"some text\n"
    monkeypatch.setitem(known.TRAIN_FILES, len(text), (hashlib.sha256(text).hexdigest(), "small"))
    files = {"any/x.txt": text, "103/train.txt": text, "as long/x.txt": b"same size\n", "longer/x.txt": b"other text\n"}
    folder = write(files)
    names = [find([folder / name.partition("/")[0]], RUNNING, {})[0].known for name in files]
    assert names == ["small", "small", None, None]
    assert find([write({"any/x.tsv": text}) / "any"], LABELLED, {})[0].known is None
