"""Text to tokens to ids and back: tokenisation, and a vocabulary in a fixed order that is saved in a file.

A token is a word between white space, a character, or a word of the tokeniser for reviews and other running English
text: words, clitics, numbers and marks, case as it is. The rules of that one, in the order in which they apply:

1. The line break of web pages, `<br />` in any spelling, is white space. Other tags are text.
2. `\u2019`, `\u00b4`, a back quote, U+0092 and U+02BC, written for an apostrophe, are one; `\u2026` is `...`.
3. Two or more full stops are `...`, two or more hyphens are `--`.
4. A word is a run of letters, digits and the marks that combine with them, of any script. An apostrophe between two of
   them is part of the word (`O'Neill`), and so is one of `. , / :` between two digits (`1,000`, `3.5`, `10/10`).
5. From the end of a word the clitics n't, 's, 've, 're, 'll, 'd and 'm are split: `don't` is `do n't`, `can't` is
   `ca n't`, `I'd've` is `I 'd 've`. A clitic that stands alone, as in text that was tokenised before, is one token.
6. Every other character that is not white space is a token of its own, the hyphen in a compound as well.

White space and the order of tokens aside, nothing is lost, so a text has no token only if it is blank. Time is linear
in the length of any text. Letters and combining marks are those of Python's Unicode tables, which grow
from release to release. Scripts without spaces are not cut into words.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from quasirnn.data.text_files import read_text
from quasirnn.errors import DataError
from quasirnn.files import parse_json_object
from quasirnn.schema import Mistakes, Schema, Text, parse

FORMAT = 1
ROLES = ("padding", "unknown", "start", "end")
# How text becomes tokens, by kind, the default first. Written down so that a later release can tell an older way from
# its own.
TOKENISERS = {"word": ("whitespace", "review"), "character": ("character",)}

UNKNOWN_WORD = "<unk>"
END_OF_LINE = "<eos>"
UNKNOWN_CHARACTER = "\N{REPLACEMENT CHARACTER}"
# Running text has nothing to pad and no start symbol.
RUNNING_TEXT_SPECIALS = {
    "word": {"unknown": UNKNOWN_WORD, "end": END_OF_LINE},
    "character": {"unknown": UNKNOWN_CHARACTER},
}

# Characters that are looked at together: the words of a long text are never all there as separate strings.
SEGMENT = 1 << 20

# n't takes a letter of what is before the apostrophe, and so has its own line of code.
CLITICS = frozenset({"s", "ve", "re", "ll", "d", "m"})

APOSTROPHES = "\u2019\u00b4`\u0092\u02bc"

_SEGMENT_END = re.compile(r"[ \n]")
# No two parts that follow one another can match the same character, so each is read in linear time. Possessive
# quantifiers would say so, but early releases of Python 3.11 get them wrong.
_BREAK = re.compile(r"<\s*(?:/\s*)?br\s*(?:/\s*)?>", re.IGNORECASE)
_FULL_STOPS = re.compile(r"\.{2,}")
_HYPHENS = re.compile(r"-{2,}")


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
    if kind not in TOKENISERS:
        raise ValueError(f"kind must be one of {', '.join(TOKENISERS)}, got {kind!r}")
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


def without_breaks(text: str) -> str:
    """The text with a space for every `<br />`.

    >>> without_breaks("Good.<br /><BR>Very good.")
    'Good.  Very good.'
    """
    return _BREAK.sub(" ", text) if "<" in text else text


def is_blank(text: str) -> bool:
    """Whether a text has no token at all."""
    return not without_breaks(text).strip()


def tokenise_review(text: str, lowercase: bool = False) -> list[str]:
    """The tokens of a text, by the rules above.

    >>> tokenise_review("It wasn't a well-made film...<br /><br />I'd give it 4/10!")
    ['It', 'was', "n't", 'a', 'well', '-', 'made', 'film', '...', 'I', "'d", 'give', 'it', '4/10', '!']

    Args:
        lowercase: put the text in lower case first.
    """
    text = without_breaks(text)
    return split_review(text.lower() if lowercase else text)


def split_review(text: str) -> list[str]:
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


class VocabularyFile(Schema):
    """What `vocabulary.json` holds."""

    format: Literal[1]
    kind: str
    tokeniser: str
    lowercase: bool
    specials: dict[str, Text]
    tokens: list[Text]


class Vocabulary:
    r"""Tokens and their numbers, and how text becomes tokens.

    Of kind "word", tokens are what white space separates, and every "\n" is the special token for `end`, if there is
    one: "a b\n" is the three tokens a, b, <eos>. With the tokeniser "review", words are those of `tokenise_review`, and
    "\n" is white space. Of kind "character", every character is a token, "\n" as well. A token that is not in the
    vocabulary is read as the special token for `unknown`; without one that is an error.

    >>> vocabulary = Vocabulary.from_text("to be or not\nto be\n", "word")
    >>> vocabulary.tokens
    ('<eos>', 'be', 'to', 'not', 'or', '<unk>')
    >>> vocabulary.encode("to do\nor be\n").tolist()
    [2, 5, 0, 4, 1, 0]
    >>> vocabulary.decode([2, 5, 0, 4, 1, 0])
    'to <unk>\nor be\n'

    Args:
        kind: "word" or "character".
        tokens: all tokens, specials included; the place of a token is its number.
        specials: the token that has a role, by role: "padding", "unknown", "start", "end". At character level a
            special token may have several characters; no text becomes such a token.
        lowercase: whether text is put in lower case first.
        tokeniser: "whitespace" or "review" for words, "character" for characters; the first if not given.
    """

    def __init__(
        self,
        kind: str,
        tokens: Sequence[str],
        specials: Mapping[str, str] | None = None,
        lowercase: bool = False,
        tokeniser: str | None = None,
    ) -> None:
        self.kind = kind
        self.tokeniser = TOKENISERS.get(kind, ("",))[0] if tokeniser is None else tokeniser
        self.tokens = tuple(tokens)
        self.specials = dict(specials or {})
        self.lowercase = lowercase
        self._numbers = {token: number for number, token in enumerate(self.tokens)}
        self._check()
        self._silent = {self._numbers[self.specials[role]] for role in ("padding", "start") if role in self.specials}
        self._by_code_point: np.ndarray | None = None

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, int],
        kind: str,
        specials: Mapping[str, str] | None = None,
        *,
        lowercase: bool = False,
        tokeniser: str | None = None,
        max_size: int | None = None,
        min_count: int = 1,
    ) -> "Vocabulary":
        """The tokens of a corpus by falling frequency, equally frequent ones by code point.

        Specials take part in that order with their count in the corpus, the unknown token with all that it stands for,
        and are kept whatever their count: where every token of the corpus is known there is still a number for those
        that a later text may bring.

        Args:
            counts: how often each token occurs, as `count_tokens` gives it.
            specials: those of running text if not given.
            max_size: keep the most frequent, this many with the specials.
            min_count: keep tokens that occur at least so often.
        """
        specials = RUNNING_TEXT_SPECIALS.get(kind, {}) if specials is None else specials
        kept = {token: counts.get(token, 0) for token in specials.values()}
        if max_size is not None and max_size <= len(kept):
            raise DataError(
                f"a vocabulary of {max_size} has no room for words besides its special tokens {' '.join(kept)}; it "
                f"must have at least {len(kept) + 1}"
            )
        frequent = (token for token, count in counts.items() if count >= min_count and token not in kept)
        ranked = sorted(frequent, key=lambda token: (-counts[token], token))
        kept |= {token: counts[token] for token in (ranked if max_size is None else ranked[: max_size - len(kept)])}
        left_out = sum(counts.values()) - sum(kept.values())
        if left_out:
            if "unknown" not in specials:
                raise ValueError("a vocabulary that leaves tokens out needs an unknown token")
            kept[specials["unknown"]] += left_out
        return cls(kind, sorted(kept, key=lambda token: (-kept[token], token)), specials, lowercase, tokeniser)

    @classmethod
    def build(
        cls,
        texts: Iterable[str],
        kind: str,
        specials: Mapping[str, str],
        notes: list[str],
        *,
        lowercase: bool = False,
        tokeniser: str | None = None,
        max_size: int | None = None,
        min_count: int | None = 1,
    ) -> "Vocabulary":
        """The vocabulary of the training texts, within the limits; a note says what is left out.

        Args:
            min_count: tokens that occur less often are read as unknown. None: 1 if the texts have the unknown token
                themselves, and 2 otherwise, as a model could not learn what an unknown token is like.
        """
        counts: Counter[str] = Counter()
        for text in texts:
            if tokeniser == "review":
                counts.update(tokenise_review(text, lowercase))
            else:
                counts += count_tokens(text.lower() if lowercase else text, kind, end_of_line=specials.get("end"))
        if min_count is None:
            min_count = 2 if kind == "word" and specials.get("unknown") not in counts else 1
        vocabulary = cls.from_counts(
            counts,
            kind,
            specials,
            lowercase=lowercase,
            tokeniser=tokeniser,
            max_size=max_size,
            min_count=min_count,
        )
        if left_out := [token for token in counts if token not in vocabulary]:
            share = sum(counts[token] for token in left_out) / counts.total()
            notes.append(
                f"vocabulary: {len(left_out):,} of {len(counts):,} {kind}s, {share:.1%} of the training text, are too "
                f"rare and are read as {vocabulary.specials['unknown']}"
            )
        return vocabulary

    @classmethod
    def from_text(
        cls, text: str, kind: str, specials: Mapping[str, str] | None = None, *, lowercase: bool = False, **limits: Any
    ) -> "Vocabulary":
        """The vocabulary of a text, with the default tokeniser; arguments and `limits` are those of `from_counts`."""
        specials = RUNNING_TEXT_SPECIALS.get(kind, {}) if specials is None else specials
        counts = count_tokens(text, kind, lowercase, specials.get("end"))
        return cls.from_counts(counts, kind, specials, lowercase=lowercase, **limits)

    def extended(self, tokens: Iterable[str]) -> "Vocabulary":
        """The vocabulary with more tokens at its end; the others keep their numbers."""
        return Vocabulary(self.kind, (*self.tokens, *tokens), self.specials, self.lowercase, self.tokeniser)

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._numbers

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self.kind, self.tokeniser, self.tokens, frozenset(self.specials.items()), self.lowercase

    def __repr__(self) -> str:
        return f"Vocabulary({self.kind!r}, {len(self)} tokens, specials={self.specials})"

    def special(self, role: str) -> int | None:
        """The number of the token that has a role, or None if no token has it."""
        return self._numbers[self.specials[role]] if role in self.specials else None

    def encode(self, text: str) -> Tensor:
        """The numbers of the tokens of a text, int64, (N,)."""
        return self._encode(text, self.lowercase)

    def _encode(self, text: str, lowercase: bool) -> Tensor:
        parts = [self._encode_segment(segment) for segment in self._segments(text, lowercase)]
        return torch.from_numpy(np.concatenate(parts)) if parts else torch.empty(0, dtype=torch.int64)

    def tokenise(self, text: str) -> list[str]:
        """The tokens of a text as written, known or not; `encode` gives the number of each."""
        return [token for segment in self._segments(text, self.lowercase) for token in self._split(segment)]

    def encode_all(self, texts: Sequence[str]) -> list[Tensor]:
        """The numbers of each text, int64, (N,), in one block of memory."""
        if self.kind == "character":
            # Together: characters of many texts one by one take four times as long. In lower case each by itself, as
            # that of a letter may depend on its neighbours.
            cased = [text.lower() for text in texts] if self.lowercase else list(texts)
            joined, lengths = self._encode("".join(cased), lowercase=False), [len(text) for text in cased]
            return list(joined.split(lengths))
        ids = [self.encode(text) for text in texts]
        return list(torch.cat(ids).split([len(each) for each in ids])) if ids else []

    def unknown_tokens(self, text: str) -> list[str]:
        """The tokens of a text that are not in the vocabulary, each once, in the order of the text."""
        return [token for token in dict.fromkeys(self.tokenise(text)) if token not in self._numbers]

    def decode(self, numbers: Iterable[int] | Tensor) -> str:
        """The text of some tokens: words with a space between, a line end for `end`; padding and start give nothing."""
        return "".join(self.pieces(numbers))

    def pieces(self, numbers: Iterable[int] | Tensor, *, line_start: bool = True) -> Iterator[str]:
        """The text of tokens one by one as they come, to be written as it is: the pieces together are `decode`.

        Args:
            line_start: False continues a line that has words already, so that a space comes first.
        """
        end = self.special("end")
        # A tensor gives its elements one by one only slowly.
        for number in numbers.tolist() if isinstance(numbers, Tensor) else numbers:
            if number == end:
                yield "\n" if self.kind == "word" else ""
                line_start = True
            elif number in self._silent:
                yield ""
            else:
                yield self.tokens[number] if line_start or self.kind == "character" else " " + self.tokens[number]
                line_start = False

    def _segments(self, text: str, lowercase: bool) -> Iterator[str]:
        # A segment may end at any space, and so inside of a `<br />`.
        return segments(without_breaks(text) if self.tokeniser == "review" else text, lowercase)

    def _split(self, segment: str) -> Sequence[str]:
        if self.kind == "character":
            return segment
        if self.tokeniser == "review":
            return split_review(segment)
        return split_words(segment, self.specials.get("end"))

    def _encode_segment(self, segment: str) -> np.ndarray:
        if self.kind == "word":
            return self._numbers_of(self._split(segment))
        if self._by_code_point is None:
            self._by_code_point = np.full(0x110000, -1, dtype=np.int64)
            for token, number in self._numbers.items():
                if len(token) == 1:
                    self._by_code_point[ord(token)] = number
        return self._without_gaps(self._by_code_point[code_points(segment)], segment)

    def _numbers_of(self, tokens: Sequence[str]) -> np.ndarray:
        numbers = np.fromiter((self._numbers.get(token, -1) for token in tokens), np.int64, len(tokens))
        return self._without_gaps(numbers, tokens)

    def _without_gaps(self, numbers: np.ndarray, tokens: Sequence[str]) -> np.ndarray:
        """The unknown token in the place of -1."""
        gaps = numbers < 0
        if gaps.any():
            unknown = self.special("unknown")
            if unknown is None:
                token = tokens[int(gaps.argmax())]
                raise ValueError(
                    f"{token!r:.60} is not one of the {len(self):,} tokens of the vocabulary, which has no unknown "
                    "token. Remove it from the text, or train on text that contains it"
                )
            numbers[gaps] = unknown
        return numbers

    def _check(self) -> None:
        """Raise ValueError, beginning with the key, unless text can be encoded and decoded."""
        if self.kind not in TOKENISERS:
            raise ValueError(f'"kind" must be one of {", ".join(TOKENISERS)}, got {self.kind!r:.60}')
        if self.tokeniser not in TOKENISERS[self.kind]:
            choices = '" or "'.join(TOKENISERS[self.kind])
            raise ValueError(f'"tokeniser" of this kind must be "{choices}", got {self.tokeniser!r:.60}')
        if not self.tokens:
            raise ValueError('"tokens" is empty: a vocabulary needs at least one')
        if len(self._numbers) < len(self.tokens):
            again = next(token for number, token in enumerate(self.tokens) if self._numbers[token] != number)
            raise ValueError(
                f'"tokens" contains {again!r:.60} twice, as number {self.tokens.index(again)} and '
                f"{self._numbers[again]}"
            )
        for role, token in self.specials.items():
            if role not in ROLES:
                raise ValueError(f'"specials" may have the roles {", ".join(ROLES)}, got {role!r:.60}')
            if token not in self._numbers:
                raise ValueError(f'"specials" has {token!r:.60} as {role}, which is not among the "tokens"')
        special = set(self.specials.values())
        if len(special) < len(self.specials):
            raise ValueError('"specials" gives two roles to one token')
        for number, token in enumerate(self.tokens):
            if self.kind == "word" and token.split() != [token]:
                raise ValueError(f'"tokens" number {number} must be a word without white space, got {token!r:.60}')
            if self.kind == "character" and len(token) != 1 and (token not in special or not token):
                raise ValueError(f'"tokens" number {number} must be one character, got {token!r:.60}')

    def to_json(self) -> str:
        """The text of `vocabulary.json`, a token a line, to be written as UTF-8."""
        values = {
            "format": FORMAT,
            "kind": self.kind,
            "tokeniser": self.tokeniser,
            "lowercase": self.lowercase,
            "specials": self.specials,
            "tokens": list(self.tokens),
        }
        return json.dumps(values, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str = "vocabulary.json") -> "Vocabulary":
        """The vocabulary that `to_json` has written.

        Raises:
            ValueError: for anything else, in one line that begins with `where` and names the key.
        """
        try:
            values = parse_json_object(text)
            if (got := values.get("format", FORMAT)) != FORMAT or type(got) is not int:
                raise ValueError(f'"format" must be {FORMAT}, got {got!r:.60}. Was it written by a newer version?')
            file = parse(VocabularyFile, values)
            return cls(file.kind, file.tokens, file.specials, file.lowercase, file.tokeniser)
        except Mistakes as mistakes:
            raise ValueError(f"{where}: {mistakes.lines[0]}") from None
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

    @classmethod
    def read(cls, path: str | Path) -> "Vocabulary":
        """The vocabulary in a file; errors as of `from_json`, or OSError."""
        return cls.from_json(read_text(path), str(path))
