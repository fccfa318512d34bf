"""WikiText's way of writing words, to and from ordinary text."""

import pytest

from quasirnn.data.wikitext import join, separate

ABBREVIATIONS = {"U.S.", "Dr."}

# As people write it, and as WikiText does.
PAIRS = [
    ("The game's opening theme.", "The game 's opening theme ."),
    ("a tactical role-playing game", "a tactical role @-@ playing game"),
    ("1,000 and 3.5 miles", "1 @,@ 000 and 3 @.@ 5 miles"),
    ('He said "no" (and left).', 'He said " no " ( and left ) .'),
    ("They don't; Dr. Who does!", "They don 't ; Dr. Who does !"),
    ("in the U.S. Army, 50% of $5", "in the U.S. Army , 50 % of $ 5"),
    ("either/or", "either / or"),
    ("== Plot ==\n= A title =", "= = Plot = =\n= A title ="),
    ("first\nsecond line.", "first\nsecond line ."),
]


@pytest.mark.parametrize(("ordinary", "written"), PAIRS)
def test_both_ways(ordinary, written):
    assert separate(ordinary, ABBREVIATIONS.__contains__) == written
    assert separate(written, ABBREVIATIONS.__contains__) == written
    words = [word for line in written.split("\n") for word in (*line.split(" "), "\n")][:-1]
    assert "".join(join(words)) == ordinary


@pytest.mark.parametrize(
    ("before", "words", "text"),
    [
        ("The city", ["is", "old"], " is old"),
        ("The city ' s (", ["old", ")"], "old)"),
        ('He said "', ["no", '"', "."], 'no".'),
        ('" a " b\nHe said "', ["no", '"'], 'no"'),
        ("role @-@", ["playing"], "playing"),
        ("The city", [",", "which"], ", which"),
    ],
)
def test_pieces_continue_a_text(before, words, text):
    assert "".join(join(words, before, line_start=False)) == text
    assert "".join(join([f" {word}" for word in words], before, line_start=False)) == text


def test_nothing_is_written_for_nothing():
    assert list(join([])) == []
    assert separate("", str) == ""
