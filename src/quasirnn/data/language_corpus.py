"""A corpus for a language model: files, or the built-in text, to ids and a vocabulary, with counts and notes."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from quasirnn.data.corpus_files import SPLITS, canonical, find_corpora, find_corpus
from quasirnn.data.corpus_text import PartText, built_in_parts, finish_line, line_count, read_parts
from quasirnn.data.known_corpora import Counts
from quasirnn.data.tokens import END_OF_LINE, KINDS, UNKNOWN_WORD, count_tokens, segments
from quasirnn.data.vocabulary import Vocabulary

__all__ = ["BUILT_IN", "SPLITS", "LanguageCorpus", "Split", "find_corpora", "find_corpus", "load"]

# The name of the corpus that is read where no other is given.
BUILT_IN = "python-topics"


@dataclass(frozen=True)
class Split:
    """One part of a corpus."""

    ids: Tensor  # (N,), int64
    counts: Counts
    unknown: int  # tokens that are the unknown one, or are read as it
    sha256: str  # of the text as UTF-8: that of the file, if it is one file without byte order mark and "\r"
    files: tuple[Path, ...]  # that it was read from or cut out of; none for the built-in corpus


@dataclass(frozen=True)
class LanguageCorpus:
    """The parts of a corpus as ids, and all that is worth recording or saying about it."""

    name: str  # "ptb", "wikitext-2", BUILT_IN, or that of the user's folder or file
    level: str  # "word" or "character"
    vocabulary: Vocabulary
    splits: dict[str, Split]
    published: bool  # a known corpus, and all that was read of it has the published counts
    notes: list[str]  # lines for the user

    @property
    def sha256(self) -> str:
        """One hash of all parts that were read."""
        return _sha256("".join(f"{name} {split.sha256}\n" for name, split in self.splits.items()))

    def to_dict(self) -> dict[str, Any]:
        """All but the ids and the tokens, for JSON."""
        return {
            "name": self.name,
            "level": self.level,
            "vocabulary": len(self.vocabulary),
            "published": self.published,
            "sha256": self.sha256,
            "splits": {name: _describe(split) for name, split in self.splits.items()},
        }


def load(
    data: Sequence[str | Path] = (),
    *,
    level: str = "word",
    splits: Sequence[str] = SPLITS,
    train: str | None = None,
    valid: str | None = None,
    test: str | None = None,
    vocabulary: Vocabulary | None = None,
    lowercase: bool = False,
    max_vocabulary: int | None = None,
    min_count: int | None = None,
    seed: int = 1,
) -> LanguageCorpus:
    """Read a corpus, all of it now, so that whatever is wrong with a file is said before training and not after it.

    Training parts of several folders are joined in the order given; validation and test come from the first that has
    them. A part that is missing is cut from the training text by `seed` (see `held_out.cut`), the same for any choice
    of `splits`. The vocabulary is that of the training text.

    >>> corpus = load(level="character")
    >>> corpus.name, list(corpus.splits), corpus.splits["test"].ids.dtype
    ('python-topics', ['train', 'valid', 'test'], torch.int64)

    Args:
        data: folders or files; none: the built-in corpus.
        level: "word" or "character".
        splits: what to return: train, valid (val, dev), test, or the stem of a file, to be read whole.
        train, valid, test: stems of the files, where they cannot be guessed.
        vocabulary: read the text with this one, of the same level; its `lowercase` holds, and no limits.
        lowercase: put the text in lower case.
        max_vocabulary: the most tokens that are kept, specials included.
        min_count: tokens that occur less often in training are read as unknown. By default 1; but 2 for words where the
            text itself has no <unk>, as a model could not learn otherwise what an unknown word is like.
        seed: chooses what is held out.

    Raises:
        DataError: the data cannot be used as asked; of kind TextError if the text is at fault, with file and line.
        OSError: a file cannot be read.
    """
    if level not in KINDS:
        raise ValueError(f"level must be one of {', '.join(KINDS)}, got {level!r}")
    if vocabulary is not None and vocabulary.kind != level:
        raise ValueError(f"level is {level}, but the vocabulary given is of kind {vocabulary.kind}")
    lowercase = lowercase if vocabulary is None else vocabulary.lowercase
    wanted = list(dict.fromkeys(map(canonical, splits)))
    needed = wanted if vocabulary or "train" in wanted else ["train", *wanted]

    notes: list[str] = []
    if data:
        found = find_corpora(data, train=train, valid=valid, test=test)
        name = "+".join(dict.fromkeys(each.name for each in found))
        parts = read_parts(found, needed, seed, notes)
        published = len(found) == 1 and found[0].known is not None and not notes
    else:
        name, published = BUILT_IN, False
        parts = built_in_parts(needed)
    if level == "word":
        texts = {split: finish_line(part.text) for split, part in parts.items()}
    else:
        texts = {split: part.text for split, part in parts.items()}
    counts = {split: count_tokens(text, level, lowercase) for split, text in texts.items()}
    if vocabulary is None:
        vocabulary = _build(counts["train"], level, lowercase, max_vocabulary, min_count, notes)
    numbered = {split: _number(split, parts[split], texts[split], counts[split], vocabulary, notes) for split in wanted}
    return LanguageCorpus(name, level, vocabulary, numbered, published, notes)


def _build(
    counts: Counter[str],
    level: str,
    lowercase: bool,
    max_vocabulary: int | None,
    min_count: int | None,
    notes: list[str],
) -> Vocabulary:
    """The vocabulary of the training text, within the limits."""
    if min_count is None:
        min_count = 2 if level == "word" and UNKNOWN_WORD not in counts else 1
    vocabulary = Vocabulary.from_counts(
        counts, level, lowercase=lowercase, max_size=max_vocabulary, min_count=min_count
    )
    left_out = [token for token in counts if token not in vocabulary]
    if left_out:
        share = sum(counts[token] for token in left_out) / counts.total()
        notes.append(
            f"vocabulary: {len(left_out):,} of {len(counts):,} {level}s are too rare for it; they, {share:.1%} of the "
            f"training text, are read as {vocabulary.specials['unknown']}"
        )
    return vocabulary


def _number(
    split: str, part: PartText, text: str, counts: Counter[str], vocabulary: Vocabulary, notes: list[str]
) -> Split:
    """One part as ids, with its counts."""
    ids = vocabulary.encode(text)
    strangers = sum(count for token, count in counts.items() if token not in vocabulary)
    if strangers and split != "train":
        notes.append(
            f"{split}: {strangers:,} of {len(ids):,} tokens ({strangers / len(ids):.1%}) are not in the vocabulary and "
            f"are read as {vocabulary.specials['unknown']}"
        )
    distinct = set(counts)
    if vocabulary.kind == "word":
        distinct.discard(END_OF_LINE)
        written = counts[END_OF_LINE] - text.count("\n")
        if written:
            notes.append(f"{split}: {END_OF_LINE} is written in the text {written:,} times; it reads as a line end")
    unknown = vocabulary.special("unknown")
    return Split(
        ids=ids,
        counts=Counts(line_count(text), len(ids), len(distinct)),
        unknown=0 if unknown is None else int((ids == unknown).sum()),
        sha256=_sha256(part.text),
        files=part.files,
    )


def _sha256(text: str) -> str:
    digest = hashlib.sha256()
    for segment in segments(text):
        digest.update(segment.encode())
    return digest.hexdigest()


def _describe(split: Split) -> dict[str, Any]:
    return {
        "lines": split.counts.lines,
        "tokens": split.counts.tokens,
        "distinct": split.counts.distinct,
        "unknown": split.unknown,
        "sha256": split.sha256,
        "files": [str(file) for file in split.files],
    }
