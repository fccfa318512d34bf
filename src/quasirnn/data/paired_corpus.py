"""A corpus for a translator: paired files, or the built-in numbers, dates and times, to ids and one vocabulary."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quasirnn.data import number_words
from quasirnn.data.corpus_files import SPLITS, canonical
from quasirnn.data.errors import DataError
from quasirnn.data.paired_rows import Pair
from quasirnn.data.paired_texts import PairedPart, PairedTexts, read
from quasirnn.data.tokens import UNKNOWN_CHARACTER, count_tokens
from quasirnn.data.vocabulary import Vocabulary

# The name of the corpus that is read where no other is given.
BUILT_IN = "numbers-dates-times"

# What a translator of characters needs: sentences of different length side by side, and where one begins and ends.
TRANSLATOR_SPECIALS = {"padding": "<pad>", "start": "<s>", "end": "</s>", "unknown": UNKNOWN_CHARACTER}


@dataclass(frozen=True)
class PairedSplit:
    """One part of a corpus; target number n translates source number n."""

    sources: list[Tensor]  # of each sentence, (T,), int64, T at least 1; without marks
    targets: list[Tensor]  # the same
    source_texts: list[str]  # as they are in the file, whatever the vocabulary does not know or puts in lower case
    target_texts: list[str]
    unknown: int  # characters, of both sides, that are read as the unknown one
    sha256: str  # of both sides
    files: tuple[Path, ...]  # that it was read from or held out of; none for the built-in corpus

    @property
    def characters(self) -> tuple[int, int]:
        """Of all sources, and of all targets."""
        return sum(map(len, self.sources)), sum(map(len, self.targets))

    @property
    def longest(self) -> tuple[int, int]:
        """The longest source, and the longest target."""
        return max(map(len, self.sources)), max(map(len, self.targets))


@dataclass(frozen=True)
class PairedCorpus:
    """The parts of a corpus as ids, and all that is worth recording or saying about it."""

    name: str  # "iwslt", BUILT_IN, or that of the user's folder or file
    source: str  # the languages
    target: str
    vocabulary: Vocabulary  # of characters, the same for both languages
    splits: dict[str, PairedSplit]
    notes: list[str]  # lines for the user

    @property
    def sha256(self) -> str:
        """One hash of all parts that were read."""
        lines = "".join(f"{name} {split.sha256}\n" for name, split in self.splits.items())
        return hashlib.sha256(lines.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """All but the ids, the texts and the tokens, for JSON."""
        return {
            "name": self.name,
            "source": self.source,
            "target": self.target,
            "vocabulary": len(self.vocabulary),
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
    source: str = "de",
    target: str = "en",
    max_length: int | None = 300,
    vocabulary: Vocabulary | None = None,
    min_count: int = 2,
    max_vocabulary: int | None = None,
    lowercase: bool = False,
    seed: int = 1,
) -> PairedCorpus:
    """Read a corpus, all of it now, so that whatever is wrong with a file is said before training and not after it.

    What is read, what is left out of it, and how parts that are missing are held out, is said at `paired_texts.read`.
    The vocabulary is that of both sides of the training part, by default.

    Args:
        data: folders or files; none: the built-in numbers, dates and times, which are the same for every seed.
        splits: what to return: train, valid (val, dev), test, or the stem of files, to be read whole.
        train, valid, test: stems of the files, where they cannot be guessed; several with commas between.
        source, target: the languages, as the files have them at the end of their names.
        max_length: leave pairs with a side of more characters out of train; None leaves none out.
        vocabulary: that of a model that is there already; its `lowercase` holds, and no limits.
        min_count: characters that occur less often in training are read as unknown. With 1 a model could not learn what
            an unknown character is like.
        max_vocabulary: the most characters that are kept, specials included.
        lowercase: put the text in lower case, but for `source_texts` and `target_texts`.
        seed: chooses what is held out.

    Raises:
        DataError: the data cannot be used as asked; of kind TextError if a line is at fault, with file and line.
        OSError: a file cannot be read.
        ImportError: the packages that the built-in corpus needs are not installed; the message says how to get them.
    """
    if vocabulary is not None:
        _check(vocabulary)
    wanted = list(dict.fromkeys(map(canonical, splits)))
    needed = wanted if vocabulary or "train" in wanted else ["train", *wanted]
    if data:
        texts = read(
            data,
            splits=needed,
            train=train,
            valid=valid,
            test=test,
            source=source,
            target=target,
            max_length=max_length,
            seed=seed,
        )
    else:
        texts = built_in(needed, source, target)
    notes = list(texts.notes)
    if vocabulary is None:
        vocabulary = _build(texts.parts["train"].pairs, lowercase, max_vocabulary, min_count, notes)
    numbered = {split: _number(split, texts.parts[split], vocabulary, notes) for split in wanted}
    return PairedCorpus(texts.name, source, target, vocabulary, numbered, notes)


def built_in(splits: Sequence[str] = SPLITS, source: str = "de", target: str = "en") -> PairedTexts:
    """The pairs that `number_words` writes."""
    if strangers := [split for split in splits if split not in SPLITS]:
        raise DataError(f"the built-in translations have the splits {', '.join(SPLITS)}, not {strangers[0]!r}")
    if (source, target) != ("de", "en"):
        raise DataError(
            f"the built-in translations are from de to en, not from {source} to {target}; name a folder of your own"
        )
    parts = {split: PairedPart([Pair(*pair) for pair in number_words.load(split)]) for split in splits}
    return PairedTexts(BUILT_IN, parts, [])


def _check(vocabulary: Vocabulary) -> None:
    missing = [role for role in TRANSLATOR_SPECIALS if role not in vocabulary.specials]
    if vocabulary.kind != "character" or missing:
        raise ValueError(
            f"a translator's vocabulary must be of characters and have the specials {', '.join(TRANSLATOR_SPECIALS)}, "
            f"got {vocabulary!r}"
        )


def _build(
    pairs: Sequence[Pair], lowercase: bool, max_vocabulary: int | None, min_count: int, notes: list[str]
) -> Vocabulary:
    """The vocabulary of both sides of the training part, within the limits."""
    counts = count_tokens("".join(_in_case([side for pair in pairs for side in pair], lowercase)), "character")
    vocabulary = Vocabulary.from_counts(
        counts,
        "character",
        TRANSLATOR_SPECIALS,
        lowercase=lowercase,
        max_size=max_vocabulary,
        min_count=min_count,
    )
    if left_out := [character for character in counts if character not in vocabulary]:
        notes.append(
            f"vocabulary: {len(left_out):,} of {len(counts):,} characters are too rare for it, and are read as unknown "
            f"({sum(counts[character] for character in left_out):,} times in train)"
        )
    return vocabulary


def _number(split: str, part: PairedPart, vocabulary: Vocabulary, notes: list[str]) -> PairedSplit:
    """One part as ids."""
    source_texts, target_texts = part.sources, part.targets
    sources, targets = _encode(source_texts, vocabulary), _encode(target_texts, vocabulary)
    flat = torch.cat(sources + targets)
    unknown = int((flat == vocabulary.special("unknown")).sum())
    if unknown and split != "train":
        notes.append(
            f"{split}: {unknown:,} of {len(flat):,} characters are not in the vocabulary, and are read as unknown"
        )
    return PairedSplit(sources, targets, source_texts, target_texts, unknown, part.sha256, part.files)


def _encode(texts: list[str], vocabulary: Vocabulary) -> list[Tensor]:
    """The ids of each text, in one block of memory, not one a text."""
    # Together: texts one by one take four times as long.
    texts = _in_case(texts, vocabulary.lowercase)
    return list(vocabulary.encode("".join(texts)).split([len(text) for text in texts]))


def _in_case(texts: list[str], lowercase: bool) -> list[str]:
    """Each in lower case by itself, as that of a letter may depend on its neighbours."""
    return [text.lower() for text in texts] if lowercase else texts


def _describe(split: PairedSplit) -> dict[str, Any]:
    return {
        "pairs": len(split.sources),
        "characters": list(split.characters),
        "longest": list(split.longest),
        "unknown": split.unknown,
        "sha256": split.sha256,
        "files": [str(file) for file in split.files],
    }
