"""The tokeniser for reviews and other running English text: words, clitics, numbers and marks, case as it is.

The rules, in the order in which they apply:

1. The line break of web pages, `<br />` in any spelling, is white space. Other tags are text.
2. `\u2019`, `\u00b4`, a back quote, U+0092 and U+02BC, written for an apostrophe, are one; `\u2026` is `...`.
3. Two or more full stops are `...`, two or more hyphens are `--`.
4. A word is a run of letters, digits and the marks that combine with them, of any script. An apostrophe between two of
   them is part of the word (`O'Neill`), and so is one of `. , / :` between two digits (`1,000`, `3.5`, `10/10`).
5. From the end of a word the clitics n't, 's, 've, 're, 'll, 'd and 'm are split: `don't` is `do n't`, `can't` is
   `ca n't`, `I'd've` is `I 'd 've`. A clitic that stands alone, as in text that was tokenised before, is one token.
6. Every other character that is not white space is a token of its own, the hyphen in a compound as well.

White space and the order of tokens aside, nothing is lost, so a text has no token only if it is blank. Time is linear
in the length of any text. What is a letter, and what a combining mark, is up to the Unicode tables of Python, which
learn new characters from release to release. Scripts that write no spaces are not cut into words.
"""

import re
import unicodedata
from functools import cache

# n't takes a letter of what is before the apostrophe, and so has its own line of code.
CLITICS = frozenset({"s", "ve", "re", "ll", "d", "m"})

APOSTROPHES = "\u2019\u00b4`\u0092\u02bc"

# No two parts that follow one another can match the same character, so each is read in linear time. Possessive
# quantifiers would say so, but early releases of Python 3.11 get them wrong.
_BREAK = re.compile(r"<\s*(?:/\s*)?br\s*(?:/\s*)?>", re.IGNORECASE)
_FULL_STOPS = re.compile(r"\.{2,}")
_HYPHENS = re.compile(r"-{2,}")


def without_breaks(text: str) -> str:
    """The text with a space for every `<br />`.

    >>> without_breaks("Good.<br /><BR>Very good.")
    'Good.  Very good.'
    """
    return _BREAK.sub(" ", text) if "<" in text else text


def is_blank(text: str) -> bool:
    """Whether a text has no token at all."""
    return not without_breaks(text).strip()


def tokenise(text: str, lowercase: bool = False) -> list[str]:
    """The tokens of a text, by the rules above.

    >>> tokenise("It wasn't a well-made film...<br /><br />I'd give it 4/10!")
    ['It', 'was', "n't", 'a', 'well', '-', 'made', 'film', '...', 'I', "'d", 'give', 'it', '4/10', '!']

    Args:
        lowercase: put the text in lower case first.
    """
    text = without_breaks(text)
    return split_tokens(text.lower() if lowercase else text)


def split_tokens(text: str) -> list[str]:
    """Rules 2 to 6. A text may be cut at white space and its pieces split one by one."""
    tokens = _pattern().findall(_uniform(text))
    if any("'" in token for token in tokens):
        return [part for token in tokens for part in (_split_clitics(token) if "'" in token else (token,))]
    return tokens


def _uniform(text: str) -> str:
    """The text with one spelling of apostrophes, full stops and hyphens, and spaces around underscores."""
    for apostrophe in APOSTROPHES:
        text = text.replace(apostrophe, "'")
    text = text.replace("\u2026", "...")
    # The pattern takes an underscore for a letter.
    text = text.replace("_", " _ ")
    if ".." in text:
        text = _FULL_STOPS.sub("...", text)
    if "--" in text:
        text = _HYPHENS.sub("--", text)
    return text


@cache
def _pattern() -> re.Pattern[str]:
    """One alternative a kind of token: word, clitic that stands alone, full stops, hyphens, any other character."""
    marks = _combining_marks()
    letter = rf"[\w{marks}]"
    inside = r"(?:'|(?<=\d)[.,/:](?=\d))"
    alone = "|".join(sorted(CLITICS))
    return re.compile(
        rf"{letter}+(?:{inside}{letter}+)*|'(?i:{alone})(?!'?{letter})|\.\.\.|--|\S[{marks}]*",
    )


def _combining_marks() -> str:
    """Marks such as accents and vowel signs, as ranges for a pattern: `\\w` has the letters and digits alone.

    Joiners, which are no marks, hold words and signs together as these do.
    """
    ranges: list[list[int]] = []
    for point in range(0x300, 0x10000):
        if unicodedata.category(chr(point)).startswith("M") or point in (0x200C, 0x200D):
            if ranges and ranges[-1][1] == point - 1:
                ranges[-1][1] = point
            else:
                ranges.append([point, point])
    return "".join(f"\\u{first:04x}-\\u{last:04x}" for first, last in ranges)


def _split_clitics(word: str) -> list[str]:
    """A word with apostrophes inside, its clitics split from the end."""
    pieces = word.split("'")
    clitics = []
    # A word begins with a letter, so it is a mark of its own, or a clitic alone, where the first piece is empty.
    while len(pieces) > 1 and pieces[0]:
        if pieces[-1].lower() in CLITICS:
            clitics.append("'" + pieces.pop())
        elif pieces[-1] in ("t", "T") and pieces[-2][-1:] in ("n", "N") and len(pieces[-2]) > 1:
            last = pieces.pop()
            clitics.append(pieces[-1][-1] + "'" + last)
            pieces[-1] = pieces[-1][:-1]
        else:
            break
    return ["'".join(pieces), *reversed(clitics)]
