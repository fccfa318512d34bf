"""A text cut into tokens, words or characters, a segment at a time."""

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

KINDS = ("word", "character")

UNKNOWN_WORD = "<unk>"
END_OF_LINE = "<eos>"
UNKNOWN_CHARACTER = "\N{REPLACEMENT CHARACTER}"

# Characters that are looked at together: the words of a long text are never all there as separate strings.
SEGMENT = 1 << 20

_SEGMENT_END = re.compile(r"[ \n]")


def segments(text: str, lowercase: bool = False) -> Iterator[str]:
    """The text in pieces that no word crosses: each ends with the first space or line end after SEGMENT characters."""
    start = 0
    while start < len(text):
        end = _SEGMENT_END.search(text, start + SEGMENT)
        stop = end.end() if end else len(text)
        segment = text[start:stop]
        yield segment.lower() if lowercase else segment
        start = stop


def split_words(segment: str, end_of_line: str | None) -> list[str]:
    r"""What white space separates, with a token for every "\n" if there is one.

    >>> split_words(" a  b\n\nc", "<eos>")
    ['a', 'b', '<eos>', '<eos>', 'c']
    """
    return (segment.replace("\n", f" {end_of_line} ") if end_of_line else segment).split()


def code_points(segment: str) -> np.ndarray:
    """The characters as numbers, uint32; a broken character from a command line, half a surrogate pair, is one too."""
    return np.frombuffer(segment.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def count_tokens(text: str, kind: str, lowercase: bool = False, end_of_line: str | None = END_OF_LINE) -> Counter[str]:
    r"""How often each token occurs; of kind "word" every "\n" counts as `end_of_line`.

    >>> count_tokens("a b\na\n", "word")
    Counter({'a': 2, '<eos>': 2, 'b': 1})
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if kind == "word":
        words: Counter[str] = Counter()
        for segment in segments(text, lowercase):
            words.update(split_words(segment, end_of_line))
        return words
    by_code_point = np.zeros(0x110000, dtype=np.int64)
    for segment in segments(text, lowercase):
        counts = np.bincount(code_points(segment))
        by_code_point[: len(counts)] += counts
    return Counter({chr(point): int(by_code_point[point]) for point in by_code_point.nonzero()[0]})
