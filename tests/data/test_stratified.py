from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quasirnn.data.stratified import hold_out

LABELS = ["a", "a", "a", "b"] * 100
TEXTS = [f"text {number}" for number in range(400)]


def test_the_same_share_of_every_class():
    rows = hold_out(LABELS, TEXTS, ["valid", "test"], seed=1)
    assert sorted(row for part in rows.values() for row in part) == list(range(400))
    for part in ("valid", "test"):
        assert Counter(LABELS[row] for row in rows[part]) == {"a": 30, "b": 10}
        assert rows[part] == sorted(rows[part])


def test_the_seed_decides():
    assert hold_out(LABELS, TEXTS, ["valid"], 3) == hold_out(LABELS, TEXTS, ["valid"], 3)
    assert hold_out(LABELS, TEXTS, ["valid"], 3) != hold_out(LABELS, TEXTS, ["valid"], 4)


def test_the_choice_is_the_same_everywhere():
    """Worked out once: neither the machine nor the release of Python may move it."""
    assert hold_out(LABELS, TEXTS, ["valid"], 1)["valid"][:8] == [13, 29, 34, 43, 79, 81, 99, 100]


def test_the_order_of_texts_makes_no_difference():
    there = {TEXTS[row] for row in hold_out(LABELS, TEXTS, ["valid"], 1)["valid"]}
    back = {TEXTS[::-1][row] for row in hold_out(LABELS[::-1], TEXTS[::-1], ["valid"], 1)["valid"]}
    assert there == back


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30).map(str))), st.integers(0, 3))
def test_copies_of_a_text_stay_together(pairs, seed):
    labels, texts = [label for label, _ in pairs], [text for _, text in pairs]
    # Enough of one class for both parts, whatever the others are.
    labels, texts = [*labels, *"a" * 20], [*texts, *(f"more {number}" for number in range(20))]
    rows = hold_out(labels, texts, ["valid", "test"], seed)
    parts = [{texts[row] for row in part} for part in rows.values()]
    assert sum(map(len, parts)) == len(set(texts))
    assert sorted(row for part in rows.values() for row in part) == list(range(len(texts)))
    first_labels = {text: label for label, text in reversed(list(zip(labels, texts, strict=True)))}
    assert {first_labels[text] for text in parts[0]} == {first_labels[text] for text in texts}


def test_a_rare_class_stays_in_train():
    labels, texts = [*LABELS, "c"], [*TEXTS, "rare"]
    assert 400 in hold_out(labels, texts, ["valid"], 1)["train"]


def test_too_few():
    with pytest.raises(ValueError, match=r"3 texts, 2 of them different, are too few .* valid\.tsv and test\.tsv"):
        hold_out(["a", "b", "a"], ["x", "y", "x"], ["valid", "test"], 1)
