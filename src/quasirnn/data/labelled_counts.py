"""What a part of a labelled corpus holds, how often it repeats itself, and what IMDb holds as published."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LabelledCounts:
    texts: int
    by_class: dict[str, int]
    distinct: int  # texts that differ

    def __str__(self) -> str:
        classes = sorted(self.by_class.items())
        shown = ", ".join(f"{label} {number:,}" for label, number in classes[:8]) + (", ..." if classes[8:] else "")
        return f"{self.texts:,} texts ({shown}), {self.distinct:,} distinct"


# Maas et al. 2011, aclImdb v1. 123 texts of train are in test as well.
IMDB_COUNTS = {
    "train": LabelledCounts(25_000, {"neg": 12_500, "pos": 12_500}, 24_904),
    "test": LabelledCounts(25_000, {"neg": 12_500, "pos": 12_500}, 24_801),
}


def count(labels: Sequence[str], texts: Sequence[str]) -> LabelledCounts:
    """The counts of a part.

    >>> print(count(["pos", "neg", "pos"], ["good", "bad", "good"]))
    3 texts (neg 1, pos 2), 2 distinct
    """
    return LabelledCounts(len(texts), dict(Counter(labels)), len(set(texts)))


def imdb_mismatch(split: str, counts: LabelledCounts) -> str | None:
    """One line that says how a part differs from the IMDb that is published; None if it does not."""
    expected = IMDB_COUNTS.get(split)
    if expected is None or counts == expected:
        return None
    guess = " Was it cut short?" if counts.texts < expected.texts else ""
    return f"not imdb as published, whose {split} has {expected}; this one has {counts}.{guess}"


def repeats(split: str, labels: Sequence[str], texts: Sequence[str]) -> str | None:
    """One line on texts that occur more than once in a part, with one label or with several; None if none does."""
    by_text: dict[str, set[str]] = {}
    for label, text in zip(labels, texts, strict=True):
        by_text.setdefault(text, set()).add(label)
    again = len(texts) - len(by_text)
    if not again:
        return None
    torn = sum(len(found) > 1 for found in by_text.values())
    return f"{split}: {again:,} of {len(texts):,} texts repeat another one" + (
        f"; {torn:,} texts have more than one label" if torn else ""
    )


def shared(first: str, first_texts: Sequence[str], second: str, second_texts: Sequence[str]) -> str | None:
    """One line on texts that two parts share; None if there are none."""
    both = set(first_texts) & set(second_texts)
    if not both:
        return None
    affected = sum(text in both for text in second_texts)
    return f"{second}: {affected:,} of {len(second_texts):,} texts are in {first} as well"
