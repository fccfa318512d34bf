import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quasirnn.data.held_out import BLOCKS, BLOCKS_OF_A_PART, cut

LINES = [f"line {number} of some text\n" for number in range(1000)]


def test_blocks_of_whole_lines_and_nothing_twice():
    left, held_out = cut("".join(LINES), ["valid", "test"], seed=1)
    parts = [text.splitlines(keepends=True) for text in (left, *held_out.values())]
    assert sorted(line for part in parts for line in part) == sorted(LINES)
    for part in parts:
        assert [line for line in LINES if line in set(part)] == part, "not in the order of the text"
    for part in parts[1:]:
        assert len(part) == pytest.approx(1000 * BLOCKS_OF_A_PART / BLOCKS, abs=5)


def test_the_seed_decides():
    text = "".join(LINES)
    assert cut(text, ["valid"], seed=3) == cut(text, ["valid"], seed=3)
    assert cut(text, ["valid"], seed=3) != cut(text, ["valid"], seed=4)


def test_the_choice_is_the_same_everywhere():
    """Worked out once: neither the machine nor the release of Python may move it."""
    _, held_out = cut("".join(f"{number}\n" for number in range(100, 500)), ["valid", "test"], seed=1)
    assert {part: [int(first) for first in text.split()[::10]] for part, text in held_out.items()} == {
        "valid": [110, 420],
        "test": [260, 450],
    }


@pytest.mark.parametrize(("text", "cuts_at"), [("x" * 1000, ""), ("one two " * 1000, " "), ("one two\n" * 1000, "\n")])
def test_a_long_line_is_cut_at_spaces_or_anywhere(text, cuts_at):
    left, held_out = cut(text, ["valid", "test"], seed=1)
    assert len(left) + sum(map(len, held_out.values())) == len(text)
    for part in (left, *held_out.values()):
        assert part.endswith(cuts_at)
        assert len(part) >= len(text) // BLOCKS


@settings(deadline=None)
@given(st.text("ab \n", min_size=BLOCKS, max_size=300), st.integers(0, 5))
def test_no_character_is_lost(text, seed):
    left, held_out = cut(text, ["valid", "test"], seed)
    assert sorted(left + "".join(held_out.values())) == sorted(text)
    assert left
    assert all(held_out.values())


def test_too_short_a_text():
    with pytest.raises(ValueError, match=r"a text of 7 characters is too short .* valid\.txt and test\.txt"):
        cut("a\nb\nc\nd", ["valid"], seed=1)
