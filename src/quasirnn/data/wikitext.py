"""WikiText's way of writing words, to and from ordinary text.

WikiText separates marks from words by spaces and writes those inside a word between two "@": "role @-@ playing",
"1 @,@ 000". A model of such text reads and writes ordinary text through these two functions.
"""

import re
from collections.abc import Callable, Iterable, Iterator

# In every vocabulary of such a text, and in no other.
MARKER = "@-@"

_SPACED = (
    (re.compile(r"(?<=\w)-(?=\w)"), " @-@ "),
    (re.compile(r"(?<=\d)([.,])(?=\d)"), r" @\1@ "),
    (re.compile(r"(?<=\w)'(?=\w)"), " '"),
    (re.compile(r'(?<!@)([,;:?!()\[\]"%$£/]|\.\.\.)(?!@)'), r" \1 "),
)
_BEFORE = frozenset([*".,;:?!)]%'", "...", "’"])  # noqa: RUF001 (follow a word without a space)
_BEHIND = frozenset("([$£#")  # stand right before the word behind
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


def join(words: Iterable[str], before: str = "") -> Iterator[str]:
    r"""Words of WikiText as pieces of ordinary text, one by one as they come; a line end is "\n".

    >>> "".join(join(["He", "said", '"', "no", '"', "(", "a", "two", "@-@", "year", "@-@", "old", "'s", ")", "."]))
    'He said "no" (a two-year-old\'s).'

    Args:
        before: text that they continue, as WikiText writes it.
    """
    joined = True  # to what stands before
    quoted = False
    for word in before.split(" ") if before else ():
        quoted ^= word == '"'
        joined = word in _BEHIND or word in _INSIDE or (quoted and word == '"')
    for word in words:
        if word == "\n":
            joined, quoted = True, False
            yield word
            continue
        ends = word in _BEFORE or word in _INSIDE or word.startswith("'") or (quoted and word == '"')
        yield ("" if joined or ends else " ") + _INSIDE.get(word, word)
        quoted ^= word == '"'
        joined = word in _BEHIND or word in _INSIDE or (quoted and word == '"')
