"""Reviews of films, novels, plays and series that never were: a corpus made by a grammar, so nothing is bundled.

Who praises or blames, and whether the reviewer agrees, is said in so many ways that single words and pairs of them
tell little: "not exactly a dull story", "my sister called the ending superb, and I can't agree".
"""

import functools
import random
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from quasirnn.data import review_grammar as grammar
from quasirnn.data.plain_sentences import KEPT_OUT, bare

CLASSES = ("neg", "pos")
SIZES = {"train": 12_000, "valid": 1_000, "test": 2_000}
LENGTHS = range(10, 61)  # words, as white space separates them

# Every possible sentence belongs to one part, by its checksum: shares of 100.
SHARES = {"train": range(70), "valid": range(70, 85), "test": range(85, 100)}

# How often an opinion is shared, denied, or stands in a contrast.
SHARED, DENIED = 0.35, 0.30
# How often a review is one or two plain sentences, as people write at first; and how often such a sentence is shared,
# denied or a set phrase; the rest are contrasts. A plain review may end with "!", or without a full stop.
PLAIN, TWO_SENTENCES = 0.45, 0.25
PLAIN_SHARED, PLAIN_DENIED, PLAIN_PHRASE = 0.38, 0.32, 0.15
# How often it has something like "to be honest" before it: every phrase then is in every part, with or without it.
PLAIN_HEDGED = 0.2
PLAIN_ENDS = (".", ".", ".", "!", "")
# How often a review has an aside before its opinions, one after them, and a plain verdict.
ASIDE_FIRST, ASIDE_LATER, VERDICT = 0.5, 0.3, 0.25

_PLACE = re.compile(r"\{(\w+)\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiou])")
SENTENCE_END = re.compile(r"(?<=[.!?]) ")


@dataclass(frozen=True)
class Review:
    label: str  # one of CLASSES
    text: str


def load(seed: int = 1, sizes: dict[str, int] | None = None) -> dict[str, list[Review]]:
    """The reviews by part, half of them of each class. No sentence occurs in two parts.

    The same for a seed on every machine and in every release of Python; a smaller size is the beginning of a larger.

    >>> parts = load(sizes={"train": 2, "test": 2})
    >>> [len(parts[part]) for part in parts], sorted(review.label for review in parts["test"])
    ([2, 2], ['neg', 'pos'])
    """
    sizes = SIZES if sizes is None else sizes
    return {part: list(_load(part, seed, size)) for part, size in sizes.items()}


# The demo reads them for each model and each baseline.
@functools.lru_cache(maxsize=8)
def _load(part: str, seed: int, size: int) -> tuple[Review, ...]:
    return tuple(islice(reviews(part, seed), size))


def reviews(part: str, seed: int = 1) -> Iterator[Review]:
    """The reviews of a part without end, in turn one of each class in random order."""
    draw = Draw(f"{seed} {part}")
    writer = Writer(draw, part)
    while True:
        first = draw.below(2)
        for number in (first, 1 - first):
            yield Review(CLASSES[number], writer.review(CLASSES[number]))


def sentences(text: str) -> list[str]:
    """The sentences of a review."""
    return SENTENCE_END.split(text)


class Draw:
    """Random choices from `random.Random.random` alone, whose numbers, unlike its choices, never change."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed).random

    def below(self, stop: int) -> int:
        return int(self.random() * stop)

    def one(self, items: Sequence[str]) -> str:
        return items[self.below(len(items))]

    def two(self, items: Sequence[str]) -> tuple[str, str]:
        """Two different ones."""
        first, second = self.below(len(items)), self.below(len(items) - 1)
        return items[first], items[second + (second >= first)]

    def chance(self, probability: float) -> bool:
        return self.random() < probability


class Writer:
    """Writes the reviews of one part."""

    def __init__(self, draw: Draw, part: str) -> None:
        self.draw = draw
        self.share = SHARES[part]

    def review(self, label: str) -> str:
        """A review of that verdict: plain, or of a length within LENGTHS."""
        if self.draw.chance(PLAIN):
            return self._plain(label)
        while True:
            text = " ".join(self._sentences(label))
            if text.count(" ") + 1 in LENGTHS:
                return text

    def _sentences(self, label: str) -> Iterator[str]:
        draw, kind, used = self.draw, self.draw.one(list(grammar.KINDS)), set[str]()
        plan = ["aside"] * draw.chance(ASIDE_FIRST)
        plan += ["opinion"] * (1 + draw.below(3))
        plan += ["aside"] * draw.chance(ASIDE_LATER)
        plan += ["verdict"] * draw.chance(VERDICT)
        for what in plan:
            yield self._write(what, label, kind, used)

    def _plain(self, label: str) -> str:
        kind, used = self.draw.one(list(grammar.KINDS)), set[str]()
        written = [self._write("plain", label, kind, used) for _ in range(1 + self.draw.chance(TWO_SENTENCES))]
        return " ".join(written).removesuffix(".") + self.draw.one(PLAIN_ENDS)

    def _write(self, what: str, label: str, kind: str, used: set[str]) -> str:
        """One or two sentences that belong to this part: others are thrown away and drawn anew."""
        while True:
            if what in ("opinion", "plain"):
                template, words = self._opinion(label, plain=what == "plain")
                if what == "plain" and self.draw.chance(PLAIN_HEDGED):
                    template = f"{{hedge}}, {template}"
            else:
                template, words = self.draw.one(grammar.ASIDES if what == "aside" else grammar.VERDICTS[label]), {}
            if template not in used:
                text = self._fill(template, kind, words)
                if all(self._may_write(each) for each in sentences(text)):
                    used.add(template)
                    return text

    def _may_write(self, sentence: str) -> bool:
        return zlib.crc32(sentence.encode()) % 100 in self.share and bare(sentence) not in KEPT_OUT

    def _opinion(self, label: str, *, plain: bool) -> tuple[str, dict[str, str]]:
        """A sentence that means the label, and the words of praise and blame for it."""
        draw, opposite = self.draw, "neg" if label == "pos" else "pos"
        if plain:
            shared, denied, phrase = PLAIN_SHARED, PLAIN_DENIED, PLAIN_PHRASE
            templates = grammar.PLAIN_SHARED, grammar.PLAIN_DENIED, grammar.PLAIN_CONTRASTS
        else:
            shared, denied, phrase = SHARED, DENIED, 0.0
            templates = grammar.SHARED, grammar.DENIED, grammar.CONTRASTS
        number = draw.random()
        if number < shared:
            return draw.one(templates[0]), self._words(label)
        if number < shared + denied:
            return draw.one(templates[1]), self._words(opposite)
        if number < shared + denied + phrase:
            return draw.one(grammar.PLAIN_VERDICTS[label]), {}
        return draw.one(templates[2]), self._contrast(label, opposite)

    def _contrast(self, label: str, opposite: str) -> dict[str, str]:
        """Words for what the reviewer means, and for the opposite."""
        sides = {"mine": self._words(label), "theirs": self._words(opposite)}
        names = {"": "word", "_do": "do", "_did": "did", "_felt": "felt"}
        return {f"{side}{ending}": words[name] for side, words in sides.items() for ending, name in names.items()}

    def _words(self, polarity: str) -> dict[str, str]:
        """Words of praise or of blame for the places of a sentence."""
        draw, words = self.draw, grammar.WORDS[polarity]
        word, other = draw.two(words.adjectives)
        do = draw.one(list(words.verbs))
        return {
            "word": word,
            "other": other,
            "thing": draw.one(words.nouns),
            "do": do,
            "did": words.verbs[do],
            "felt": draw.one(words.feelings),
        }

    def _fill(self, template: str, kind: str, words: dict[str, str]) -> str:
        """The template with words in its places, as sentences; a place that comes twice has the same word twice."""
        words = {"kind": kind, **words}
        lists = grammar.KINDS[kind] | grammar.LISTS

        def word(match: re.Match[str]) -> str:
            place = match[1]
            if place not in words:
                words[place] = _PLACE.sub(word, self.draw.one(lists[place.rstrip("2")]))
            return words[place]

        text = _ARTICLE.sub(r"\1n ", _PLACE.sub(word, template))
        return " ".join(each[0].upper() + each[1:] for each in text.split(" / "))
