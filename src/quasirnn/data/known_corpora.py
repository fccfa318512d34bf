"""The figures of public corpora, by which a copy shows that it is whole."""

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Counts:
    """What a text holds. At word level the end of every line is a token, but none of the distinct ones."""

    lines: int
    tokens: int
    distinct: int

    def __str__(self) -> str:
        return f"{self.lines:,} lines, {self.tokens:,} tokens, {self.distinct:,} distinct"


@dataclass(frozen=True)
class KnownCorpus:
    counts: dict[str, Counts]  # in words, by split
    train_bytes: int
    train_sha256: str


KNOWN = {
    # Penn Treebank as Mikolov prepared it: V = 9,999 + <eos>.
    "ptb": KnownCorpus(
        counts={
            "train": Counts(42_068, 929_589, 9_999),
            "valid": Counts(3_370, 73_760, 6_021),
            "test": Counts(3_761, 82_430, 6_048),
        },
        train_bytes=5_101_618,
        train_sha256="fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    ),
    # Merity et al. 2016, the tokenised version with <unk>: V = 33,277 + <eos>.
    "wikitext-2": KnownCorpus(
        counts={
            "train": Counts(36_718, 2_088_628, 33_277),
            "valid": Counts(3_760, 217_646, 13_776),
            "test": Counts(4_358, 245_569, 14_142),
        },
        train_bytes=10_797_148,
        train_sha256="9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
    ),
}


def recognise(train_file: Path) -> str | None:
    """The known corpus that a file is the training part of, whatever it is called; None if of none."""
    size = train_file.stat().st_size
    for name, corpus in KNOWN.items():
        if size == corpus.train_bytes:
            with train_file.open("rb") as stream:
                if hashlib.file_digest(stream, "sha256").hexdigest() == corpus.train_sha256:
                    return name
    return None


def mismatch(name: str, split: str, counts: Counts) -> str | None:
    """One line that says how a part of a known corpus differs from the published one; None if it does not."""
    expected = KNOWN[name].counts[split]
    if counts == expected:
        return None
    guess = " Was it cut short?" if counts.lines < expected.lines else ""
    return f"not {name} as published, whose {split} has {expected}; this one has {counts}.{guess}"
