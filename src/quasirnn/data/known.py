"""Public corpora: the names by which their files are recognised, and the counts that a complete copy has."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quasirnn.data.corpus import Part, finish_line
from quasirnn.data.vocabulary import END_OF_LINE, count_tokens
from quasirnn.errors import printable

if TYPE_CHECKING:
    from quasirnn.data.sources import Source

PTB, WIKITEXT, IMDB, IWSLT = "ptb", "wikitext-2", "imdb", "iwslt"

# IWSLT's training text, and the names of public sets that stand for a part which has no plain name: those of IWSLT that
# the paper uses (section 3.3), and the common test set of Multi30k.
TAGGED = "train.tags."
SETS = {"train": (), "valid": ("TED.tst2013",), "test": ("TED.tst2014", "test_2016_flickr")}


@dataclass(frozen=True)
class TextCounts:
    """Of running text, in words: the end of every line is a token, but none of the distinct ones."""

    lines: int
    tokens: int
    distinct: int

    @classmethod
    def of(cls, part: Part) -> "TextCounts":
        text = part.text
        words = count_tokens(finish_line(text), "word")
        return cls(line_count(text), words.total(), len(words.keys() - {END_OF_LINE}))

    def __str__(self) -> str:
        return f"{self.lines:,} lines, {self.tokens:,} tokens, {self.distinct:,} distinct"

    @property
    def size(self) -> int:
        return self.lines


@dataclass(frozen=True)
class LabelCounts:
    """Of labelled texts."""

    texts: int
    by_class: dict[str, int]
    distinct: int

    @classmethod
    def of(cls, part: Part) -> "LabelCounts":
        return cls(len(part), dict(Counter(part["label"])), len(set(part["text"])))

    def __str__(self) -> str:
        classes = sorted(self.by_class.items())
        shown = ", ".join(f"{printable(label)} {number:,}" for label, number in classes[:8])
        shown += ", ..." if classes[8:] else ""
        return f"{self.texts:,} texts ({shown}), {self.distinct:,} distinct"

    @property
    def size(self) -> int:
        return self.texts


COUNTS: dict[str, dict[str, TextCounts] | dict[str, LabelCounts]] = {
    # Penn Treebank as Mikolov prepared it: V = 9,999 + <eos>.
    PTB: {
        "train": TextCounts(42_068, 929_589, 9_999),
        "valid": TextCounts(3_370, 73_760, 6_021),
        "test": TextCounts(3_761, 82_430, 6_048),
    },
    # Merity et al. 2016, the tokenised version with <unk>: V = 33,277 + <eos>.
    WIKITEXT: {
        "train": TextCounts(36_718, 2_088_628, 33_277),
        "valid": TextCounts(3_760, 217_646, 13_776),
        "test": TextCounts(4_358, 245_569, 14_142),
    },
    # Maas et al. 2011, aclImdb v1. 123 texts of train are in test as well.
    IMDB: {
        "train": LabelCounts(25_000, {"neg": 12_500, "pos": 12_500}, 24_904),
        "test": LabelCounts(25_000, {"neg": 12_500, "pos": 12_500}, 24_801),
    },
}
# A training file with these very bytes is that corpus under any name.
TRAIN_FILES = {
    5_101_618: ("fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf", PTB),
    10_797_148: ("9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f", WIKITEXT),
}
# File names, and folders of train.txt, valid.txt and test.txt, under which running text is taken for a known corpus.
TEXT_FILES = {"ptb.{}.txt": PTB, "wiki.{}.tokens": WIKITEXT}
TEXT_FOLDERS = {"ptb": PTB, "penn": PTB, "wikitext-2": WIKITEXT}


def recognise(columns: tuple[str, ...], folder: Path, parts: "Mapping[str, tuple[Source, ...]]") -> str | None:
    """The known corpus that the parts in a folder are, or are named like; None if none."""
    first = next(iter(parts.get("train", parts.get("test", parts.get("valid", ())))), None)
    if first is None:
        return None
    file, name = first.paths[0], folder.resolve().name.lower()
    if columns == ("text",):
        if "train" in parts and (same := _by_content(file)):
            return same
        # WikiText-103 has the file names of its smaller sister.
        if "103" in name:
            return None
        splits = ("train", "valid", "val", "dev", "test")
        plain = file.name in {f"{split}.txt" for split in splits}
        return text_files(splits).get(file.name) or (TEXT_FOLDERS.get(name) if plain else None)
    if columns == ("label", "text"):
        return IMDB if name == "aclimdb" or is_packed_imdb(file) else None
    return IWSLT if first.stem.startswith(TAGGED) else None


def text_files(splits: Iterable[str]) -> dict[str, str]:
    """The file names of known running text, and the corpus that each is of."""
    return {pattern.format(split): corpus for split in splits for pattern, corpus in TEXT_FILES.items()}


def is_packed_imdb(file: Path) -> bool:
    """Whether a file has the columns label (1 or 0), rating, id and text: IMDb packed into one file a part."""
    return file.name.lower() in {f"imdb.{split}.tsv" for split in ("train", "valid", "test")}


def mismatch(name: str, split: str, part: Part) -> str | None:
    """One line that says how a part of a known corpus differs from the published one; None if it does not."""
    expected = COUNTS.get(name, {}).get(split)
    if expected is None:
        return None
    counts = type(expected).of(part)
    if counts == expected:
        return None
    guess = " Is it incomplete?" if counts.size < expected.size else ""
    return f"differs from the published {name}: its {split} has {expected}; this one has {counts}.{guess}"


def line_count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and text != "")


def _by_content(train_file: Path) -> str | None:
    sha256, corpus = TRAIN_FILES.get(train_file.stat().st_size, (None, None))
    if corpus is None:
        return None
    with train_file.open("rb") as stream:
        return corpus if hashlib.file_digest(stream, "sha256").hexdigest() == sha256 else None
