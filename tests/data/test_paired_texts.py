import pytest

from quasirnn.data.errors import DataError
from quasirnn.data.paired_rows import Pair
from quasirnn.data.paired_texts import MOST, read


@pytest.fixture
def folder(tmp_path):
    """Writes pairs under a stem such as mine/train, and returns the folder."""

    def write(**parts):
        for stem, pairs in parts.items():
            place = tmp_path / stem.replace("__", "/")
            place.parent.mkdir(exist_ok=True)
            for side, language in enumerate(("de", "en")):
                text = "".join(f"{pair[side]}\n" for pair in pairs)
                place.with_suffix(f".{language}").write_text(text, encoding="utf-8")
        return tmp_path

    return write


def numbered(number, first=0):
    return [(f"Satz {n}", f"sentence {n}") for n in range(first, first + number)]


def test_parts_as_they_are(folder):
    path = folder(train=numbered(3), val=numbered(2, 10), test=numbered(1, 20), test_hard=numbered(4, 30))
    texts = read([path], splits=["train", "val", "test", "test_hard"])
    assert {split: part.pairs for split, part in texts.parts.items()} == {
        "train": numbered(3),
        "valid": numbered(2, 10),
        "test": numbered(1, 20),
        "test_hard": numbered(4, 30),
    }
    assert (texts.name, texts.notes) == (path.name, [])
    assert texts.parts["valid"].files == (path / "val.de", path / "val.en")
    assert texts.parts["train"].sha256 != texts.parts["valid"].sha256


def test_empty_sides_are_left_out_of_every_part(folder):
    path = folder(
        train=[("a", "b"), ("", "c"), ("d", " \t"), ("", "")], valid=[("e", "f")], test=[("g", "h"), ("i", "")]
    )
    texts = read([path])
    assert [part.pairs for part in texts.parts.values()] == [[("a", "b")], [("e", "f")], [("g", "h")]]
    assert texts.notes == [
        "train: 3 of 4 pairs of train left out, as a side is empty",
        "test: 1 of 2 pairs of test left out, as a side is empty",
    ]
    folder(test=[("", "a")])
    with pytest.raises(DataError, match=r"test\.de: all of its 1 pairs have an empty side"):
        read([path])


def test_long_pairs_are_left_out_of_train_alone(folder):
    pairs = [("a" * 5, "b"), ("a" * 6, "b"), ("a", "ü" * 6), ("a", "ü" * 5)]
    path = folder(train=pairs, valid=pairs, test=pairs)
    texts = read([path], max_length=5)
    assert texts.parts["train"].pairs == [pairs[0], pairs[3]]
    assert texts.parts["valid"].pairs == texts.parts["test"].pairs == pairs
    assert texts.notes[0] == "train: 2 of 4 pairs left out, as a side has more than max_length = 5 characters"
    assert len(read([path], max_length=None).parts["train"].pairs) == 4
    folder(train=pairs[1:2])
    with pytest.raises(DataError, match=r"train\.de: every pair has a side of more than max_length = 5 characters"):
        read([path], max_length=5)


def test_targets_that_are_in_train_as_well_are_counted(folder):
    path = folder(train=[("a", "b"), ("c", "d")], valid=[("x", "b"), ("y", "d"), ("z", "e")], test=[("a", "f")])
    assert read([path]).notes == ["valid: 2 of 3 target sentences are in train as well"]


def translations(number):
    """Sentences of which some have several sources, on neighbouring lines, as Tatoeba has them."""
    return [(f"Satz {n} {way}", f"sentence {n}") for n in range(number) for way in range(1 + n % 3)]


def test_missing_parts_are_held_out_with_no_target_on_both_sides(folder):
    pairs = translations(300)
    path = folder(tatoeba=pairs)
    parts = read([path]).parts
    assert sorted(pair for part in parts.values() for pair in part.pairs) == sorted(pairs)
    targets = [set(part.targets) for part in parts.values()]
    assert sum(map(len, targets)) == 300
    assert [len(parts[split].pairs) for split in ("valid", "test")] == [30, 30]
    for part in parts.values():
        assert part.pairs == [pair for pair in pairs if pair in set(part.pairs)], "not in the order of the file"
    assert read([path]).notes == [
        f"{path.name}: no valid or test, so held out of its train (60 of 600 pairs, no target sentence on both sides, "
        f"seed 1)"
    ]


def test_what_is_held_out_depends_on_the_seed_alone(folder):
    path = folder(tatoeba=translations(300))
    first, second = read([path], seed=1), read([path], seed=2)
    assert first.parts["test"].pairs != second.parts["test"].pairs
    for splits in (["test"], ["dev", "test"], ["test", "train"]):
        assert read([path], splits=splits).parts["test"].pairs == first.parts["test"].pairs
    assert read([path], max_length=10).parts["test"].pairs == first.parts["test"].pairs
    # Worked out once: neither the machine nor the release of Python may move it.
    assert [pair.target for pair in first.parts["test"].pairs[::10]] == ["sentence 9", "sentence 91", "sentence 187"]


def test_only_what_is_missing_is_held_out(folder):
    path = folder(train=numbered(100), test=numbered(10, 500))
    texts = read([path])
    assert texts.parts["test"].pairs == numbered(10, 500)
    assert len(texts.parts["valid"].pairs) == 5
    assert len(texts.parts["train"].pairs) == 95
    assert "no valid, so held out of its train (5 of 100 pairs" in texts.notes[0]


def test_a_large_corpus_has_no_more_than_enough_held_out(folder):
    path = folder(train=numbered(50_000))
    assert {split: len(part.pairs) for split, part in read([path]).parts.items()} == {
        "train": 50_000 - 2 * MOST,
        "valid": MOST,
        "test": MOST,
    }


def test_too_few_to_hold_out(folder):
    with pytest.raises(DataError, match=r"2 pairs are too few to hold valid and test out\. .* valid=STEM test=STEM"):
        read([folder(train=numbered(2))])


def test_folders_are_joined_and_each_keeps_a_test_of_its_own(folder):
    """One folder has its parts, the other does not, and they share sentences."""
    path = folder(
        whole__train=numbered(400),
        whole__valid=numbered(5, 1000),
        whole__test=numbered(5, 2000),
        alone__alone=numbered(200),
    )
    both = read([path / "whole", path / "alone"])
    assert both.name == "whole+alone"
    assert both.parts["valid"].pairs == numbered(5, 1000)
    assert both.parts["test"].pairs == numbered(5, 2000)
    alone = read([path / "alone"], splits=["valid", "test"])
    held_out = {pair.target for part in alone.parts.values() for pair in part.pairs}
    assert len(held_out) == 20
    train = both.parts["train"]
    assert not held_out & set(train.targets)
    assert train.pairs == [Pair(*pair) for pair in numbered(400) + numbered(200) if pair[1] not in held_out]
    assert both.notes == [
        "alone: no valid or test, so held out of its train (20 of 200 pairs, no target sentence on both sides, seed 1)",
        "train: 20 pairs left out, as another folder has their target sentence held out",
    ]
    assert [file.parent.name for file in train.files] == ["whole", "whole", "alone", "alone"]


def test_folders_without_parts_are_held_out_of_together(folder):
    path = folder(a__train=numbered(100), b__train=numbered(200, 50))
    parts = read([path / "a", path / "b"]).parts
    assert [len(parts[split].pairs) for split in ("valid", "test")] == [15, 15]
    assert not set(parts["train"].targets) & {*parts["valid"].targets, *parts["test"].targets}


def test_several_stems_of_one_folder(folder):
    path = folder(a=numbered(3), b=numbered(3, 10), c=numbered(3, 20), d=numbered(3, 30))
    texts = read([path], train="a,b", valid="c", test="d")
    assert texts.parts["train"].pairs == numbered(3) + numbered(3, 10)


def test_what_is_not_there(folder):
    path = folder(test=numbered(3))
    assert read([path], splits=["test"]).parts["test"].pairs == numbered(3)
    with pytest.raises(
        DataError, match="has no training part; it holds test; say which is which: train=STEM valid=STEM"
    ):
        read([path])
    with pytest.raises(
        DataError, match="has no split 'hard': neither train, valid or test nor the stem of files; it holds"
    ):
        read([path], splits=["hard"])
