"""WikiText's way of writing words, to and from ordinary text.

WikiText separates marks from words by spaces and writes those inside a word between two "@": "role @-@ playing",
"1 @,@ 000". A model of such text reads and writes ordinary text through these two functions.
"""

import re
from collections.abc import Callable, Iterable, Iterator

# In every vocabulary of such a text, and in no other.
MARKER = "@-@"
QUOTE, HEADING = '"', "="

_SPACED = (
    (re.compile(r"(?<=\w)-(?=\w)"), " @-@ "),
    (re.compile(r"(?<=\d)([.,])(?=\d)"), r" @\1@ "),
    (re.compile(r"(?<=\w)'(?=\w)"), " '"),
    (re.compile(r"=(?==)"), "= "),  # of a heading
    (re.compile(r'(?<!@)([,;:?!()\[\]"%$£/]|\.\.\.)(?!@)'), r" \1 "),
)
_BEFORE = frozenset([*".,;:?!)]%'", "...", "\u2019"])  # stand right after the previous word
_BEHIND = frozenset("([$£#")  # stand right before the next word
_INSIDE = {"@-@": "-", "@,@": ",", "@.@": ".", "/": "/"}


def separate(text: str, known: Callable[[str], bool]) -> str:
    """Ordinary text as WikiText writes it; what is written so already stays as it is.

    >>> separate("It's a first-person game (1,000 copies).", {"U.S."}.__contains__)
    "It 's a first @-@ person game ( 1 @,@ 000 copies ) ."
    >>> separate("in the U.S. Army.", {"U.S."}.__contains__)
    'in the U.S. Army .'

    Args:
        known: whether a word is in the vocabulary; the full stop of one that is belongs to it.
    """
    for pattern, spaced in _SPACED:
        text = pattern.sub(spaced, text)
    text = re.sub(r"[^\s.]\S*\.(?!\S)", lambda word: _without_full_stop(word[0], known), text)
    return re.sub(r" +", " ", text).strip(" ")


def _without_full_stop(word: str, known: Callable[[str], bool]) -> str:
    return word if known(word) or word.endswith("..") else f"{word[:-1]} ."


def join(pieces: Iterable[str], before: str = "", *, line_start: bool = True) -> Iterator[str]:
    r"""Words of WikiText as pieces of ordinary text, one by one as they come; a line end is "\n".

    >>> "".join(join('He said " no " ( a two @-@ year @-@ old \'s ) .'.split(" ")))
    'He said "no" (a two-year-old\'s).'

    Args:
        pieces: words, with a space before them or not.
        before: text that they continue, as WikiText writes it.
        line_start: no space belongs before the first piece.
    """
    quoted, last = False, ""
    for last in before.rsplit("\n", 1)[-1].split(" "):
        quoted ^= last == QUOTE
    joined = line_start or _joins_next(last, quoted)
    for piece in pieces:
        word = piece.removeprefix(" ")
        if word == "\n":
            joined, quoted, last = True, False, ""
            yield word
            continue
        ends = word in _BEFORE or word in _INSIDE or word.startswith("'") or (quoted and word == QUOTE)
        ends |= word == last == HEADING
        yield ("" if joined or ends else " ") + _INSIDE.get(word, word)
        quoted ^= word == QUOTE
        joined, last = _joins_next(word, quoted), word


def _joins_next(word: str, quoted: bool) -> bool:
    """Whether no space follows a word: after an opening bracket or quote, and inside a word."""
    return word in _BEHIND or word in _INSIDE or (quoted and word == QUOTE)
