"""Parts held out of a text that comes without its own: blocks of neighbouring lines, chosen by a seed."""

import hashlib
from collections.abc import Sequence
from itertools import pairwise

from quasirnn.data.errors import DataError

# The text is cut into this many blocks of about the same size, and a held-out part is some of them, 5 % of the text.
BLOCKS = 40
BLOCKS_OF_A_PART = 2


def cut(text: str, parts: Sequence[str], seed: int) -> tuple[str, dict[str, str]]:
    r"""Hold parts out of a text: what is left, and the parts by name, each in the order of the text.

    Blocks end where a line does; where a line is longer than a block, at a space; and where there is none of
    either, anywhere. Nothing is lost and nothing is in two parts. The choice depends on the number of blocks and the
    seed alone, on every machine and in every release of Python.

    >>> left, held = cut("".join(f"{number}\n" for number in range(100, 500)), ["valid", "test"], seed=1)
    >>> len(left.split()), len(held["valid"].split()), len(held["test"].split())
    (360, 20, 20)
    """
    blocks = _blocks(text)
    needed = len(parts) * BLOCKS_OF_A_PART
    order = sorted(range(len(blocks)), key=lambda number: hashlib.sha256(f"{seed} {number}".encode()).digest())
    chosen = {
        part: set(order[first * BLOCKS_OF_A_PART : (first + 1) * BLOCKS_OF_A_PART]) for first, part in enumerate(parts)
    }
    left = set(order[needed:])
    return _join(blocks, left), {part: _join(blocks, numbers) for part, numbers in chosen.items()}


def _join(blocks: list[str], numbers: set[int]) -> str:
    return "".join(blocks[number] for number in sorted(numbers))


def _blocks(text: str) -> list[str]:
    if len(text) < BLOCKS:
        raise DataError(
            f"a text of {len(text)} characters is too short to hold parts out of it; at least {BLOCKS} are needed. "
            f"Give them as files of their own: valid.txt and test.txt"
        )
    marks = [len(text) * number // BLOCKS for number in range(BLOCKS + 1)]
    ends = [0, *(_end(text, start, stop) for start, stop in pairwise(marks[1:])), len(text)]
    return [text[start:stop] for start, stop in pairwise(ends)]


def _end(text: str, start: int, stop: int) -> int:
    """The first place in [start, stop) after a line end, or else after a space, or else the start."""
    for line_end in ("\n", " "):
        place = text.find(line_end, start - 1, stop - 1)
        if place >= 0:
            return place + 1
    return start
