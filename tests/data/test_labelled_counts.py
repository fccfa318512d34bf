import pytest

from quasirnn.data.labelled_counts import IMDB_COUNTS, LabelledCounts, count, imdb_mismatch, repeats, shared


@pytest.mark.parametrize("split", IMDB_COUNTS)
def test_a_difference_is_one_line_with_both_figures(split):
    expected = IMDB_COUNTS[split]
    assert imdb_mismatch(split, expected) is None
    got = LabelledCounts(24_999, {"pos": 12_500, "neg": 12_499}, 24_000)
    line = imdb_mismatch(split, got)
    assert line.startswith(f"not imdb as published, whose {split} has 25,000 texts (neg 12,500, pos 12,500), ")
    assert line.endswith("this one has 24,999 texts (neg 12,499, pos 12,500), 24,000 distinct. Was it cut short?")
    assert imdb_mismatch("hard", got) is None


def test_many_classes_are_cut_short():
    labels = [f"class {number:02}" for number in range(30)]
    assert str(count(labels, labels)).endswith("class 06 1, class 07 1, ...), 30 distinct")


def test_repeats():
    assert repeats("train", ["a", "b"], ["x", "y"]) is None
    assert repeats("train", ["a", "a", "a"], ["x", "x", "x"]) == "train: 2 of 3 texts repeat another one"
    line = repeats("train", ["a", "b", "a", "a"], ["x", "x", "y", "y"])
    assert line == "train: 2 of 4 texts repeat another one; 1 texts have more than one label"


def test_shared():
    assert shared("train", ["x", "x"], "test", ["y"]) is None
    assert shared("train", ["x", "y"], "test", ["x", "z", "x"]) == "test: 2 of 3 texts are in train as well"
