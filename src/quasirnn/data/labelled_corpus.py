"""A corpus for a classifier of texts: labelled files, or the built-in reviews, to ids, labels and a vocabulary."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quasirnn.data import reviews
from quasirnn.data.corpus_files import SPLITS, canonical
from quasirnn.data.errors import DataError
from quasirnn.data.labelled_counts import LabelledCounts
from quasirnn.data.labelled_texts import LabelledPart, LabelledTexts, read
from quasirnn.data.review_tokens import tokenise
from quasirnn.data.vocabulary import CLASSIFIER_SPECIALS, Vocabulary

# The name of the corpus that is read where no other is given.
BUILT_IN = "invented-reviews"


@dataclass(frozen=True)
class LabelledSplit:
    """One part of a corpus; label number n is that of text number n."""

    ids: list[Tensor]  # of each text, (T,), int64, T at least 1
    labels: Tensor  # (N,), int64: places in the classes
    counts: LabelledCounts
    unknown: int  # tokens that are read as the unknown one
    sha256: str  # of labels and texts
    files: tuple[Path, ...]  # that it was read from or held out of; none for the built-in corpus

    @property
    def tokens(self) -> int:
        return sum(map(len, self.ids))

    @property
    def longest(self) -> int:
        return max(map(len, self.ids))


@dataclass(frozen=True)
class LabelledCorpus:
    """The parts of a corpus as ids, and all that is worth recording or saying about it."""

    name: str  # "imdb", BUILT_IN, or that of the user's folder or file
    classes: tuple[str, ...]
    vocabulary: Vocabulary
    splits: dict[str, LabelledSplit]
    published: bool  # IMDb, and all that was read of it has the published counts
    notes: list[str]  # lines for the user

    @property
    def sha256(self) -> str:
        """One hash of all parts that were read."""
        lines = "".join(f"{name} {split.sha256}\n" for name, split in self.splits.items())
        return hashlib.sha256(lines.encode()).hexdigest()

    def token_counts(self, split: str = "train") -> Tensor:
        """How often each token of the vocabulary occurs in a part, (V,), int64."""
        return torch.bincount(torch.cat(self.splits[split].ids), minlength=len(self.vocabulary))

    def to_dict(self) -> dict[str, Any]:
        """All but the ids and the tokens, for JSON."""
        return {
            "name": self.name,
            "classes": list(self.classes),
            "vocabulary": len(self.vocabulary),
            "published": self.published,
            "sha256": self.sha256,
            "splits": {name: _describe(split) for name, split in self.splits.items()},
        }


def load(
    data: Sequence[str | Path] = (),
    *,
    splits: Sequence[str] = SPLITS,
    train: str | None = None,
    valid: str | None = None,
    test: str | None = None,
    classes: Sequence[str] | None = None,
    vocabulary: Vocabulary | None = None,
    lowercase: bool = False,
    max_vocabulary: int | None = None,
    min_count: int = 2,
    seed: int = 1,
) -> LabelledCorpus:
    """Read a corpus, all of it now, so that whatever is wrong with a file is said before training and not after it.

    What is read, and how parts that are missing are held out, is said at `labelled_texts.read`; how text becomes
    tokens, in `review_tokens`. The vocabulary is that of the training part.

    >>> corpus = load(splits=["test"])
    >>> corpus.name, corpus.classes, len(corpus.splits["test"].ids)
    ('invented-reviews', ('neg', 'pos'), 2000)

    Args:
        data: folders or files; none: the built-in reviews, which are the same for every seed.
        splits: what to return: train, valid (val, dev), test, or the name of a file, to be read whole.
        train, valid, test: names of the files, where they cannot be guessed.
        classes, vocabulary: those of a model that is there already; its `lowercase` holds, and no limits.
        lowercase: put the text in lower case; otherwise "The" and "the" are two tokens.
        max_vocabulary: the most tokens that are kept, specials included.
        min_count: tokens that occur less often in training are read as unknown. With 1 a model could not learn what an
            unknown word is like.
        seed: chooses what is held out.

    Raises:
        ValueError: the data cannot be used as asked; of kind TextError if a row is at fault, with file and line.
        OSError: a file cannot be read.
    """
    wanted = list(dict.fromkeys(map(canonical, splits)))
    needed = wanted if vocabulary or "train" in wanted else ["train", *wanted]
    if data:
        texts = read(data, splits=needed, train=train, valid=valid, test=test, classes=classes, seed=seed)
    else:
        texts = built_in(needed)
        if classes is not None and tuple(classes) != texts.classes:
            raise DataError(
                f"the built-in reviews have the classes {', '.join(texts.classes)}, not {', '.join(classes)}; "
                f"name the folder of the texts"
            )
    notes = list(texts.notes)
    if vocabulary is None:
        vocabulary = _build(texts.parts["train"].texts, lowercase, max_vocabulary, min_count, notes)
    numbered = {split: _number(split, texts.parts[split], texts.classes, vocabulary, notes) for split in wanted}
    return LabelledCorpus(texts.name, texts.classes, vocabulary, numbered, texts.published, notes)


def built_in(splits: Sequence[str] = SPLITS) -> LabelledTexts:
    """The reviews that the grammar of `reviews` writes."""
    if strangers := [split for split in splits if split not in SPLITS]:
        raise DataError(f"the built-in reviews have the splits {', '.join(SPLITS)}, not {strangers[0]!r}")
    written = reviews.load(sizes={split: reviews.SIZES[split] for split in splits})
    parts = {
        split: LabelledPart([review.label for review in each], [review.text for review in each])
        for split, each in written.items()
    }
    return LabelledTexts(BUILT_IN, reviews.CLASSES, parts, False, [])


def _build(
    texts: list[str], lowercase: bool, max_vocabulary: int | None, min_count: int, notes: list[str]
) -> Vocabulary:
    """The vocabulary of the training texts, within the limits."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(tokenise(text, lowercase))
    vocabulary = Vocabulary.from_counts(
        counts,
        "word",
        CLASSIFIER_SPECIALS,
        lowercase=lowercase,
        tokeniser="review",
        max_size=max_vocabulary,
        min_count=min_count,
    )
    left_out = len(counts) + len(vocabulary.specials) - len(vocabulary)
    if left_out:
        share = sum(number for token, number in counts.items() if token not in vocabulary) / counts.total()
        notes.append(
            f"vocabulary: {left_out:,} of {len(counts):,} words are too rare for it; they, {share:.1%} of the training "
            f"text, are read as {vocabulary.specials['unknown']}"
        )
    return vocabulary


def _number(
    split: str, part: LabelledPart, classes: Sequence[str], vocabulary: Vocabulary, notes: list[str]
) -> LabelledSplit:
    """One part as ids."""
    place = {label: number for number, label in enumerate(classes)}
    ids = [vocabulary.encode(text) for text in part.texts]
    flat = torch.cat(ids)
    unknown = int((flat == vocabulary.special("unknown")).sum())
    if unknown and split != "train":
        notes.append(
            f"{split}: {unknown:,} of {len(flat):,} tokens ({unknown / len(flat):.1%}) are not in the vocabulary and "
            f"are read as {vocabulary.specials['unknown']}"
        )
    return LabelledSplit(
        # One block of memory, not one a text.
        ids=list(flat.split([len(each) for each in ids])),
        labels=torch.tensor([place[label] for label in part.labels]),
        counts=part.counts,
        unknown=unknown,
        sha256=part.sha256,
        files=part.files,
    )


def _describe(split: LabelledSplit) -> dict[str, Any]:
    return {
        "texts": split.counts.texts,
        "by_class": split.counts.by_class,
        "distinct": split.counts.distinct,
        "tokens": split.tokens,
        "longest": split.longest,
        "unknown": split.unknown,
        "sha256": split.sha256,
        "files": [str(file) for file in split.files],
    }
