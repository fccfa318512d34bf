"""Labelled texts for a classifier: all parts of a corpus read and checked, missing ones held out, notes on the rest."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quasirnn.data import labelled_counts
from quasirnn.data.corpus_files import SPLITS, CorpusFiles, canonical
from quasirnn.data.errors import DataError
from quasirnn.data.labelled_files import find_labelled, find_labelled_part, listing
from quasirnn.data.labelled_rows import read_rows
from quasirnn.data.stratified import hold_out
from quasirnn.data.text_files import TextError

# More classes than this, and than half of the texts, are taken for texts in the place of labels.
MANY_CLASSES = 100


@dataclass(frozen=True)
class LabelledPart:
    """One part of a corpus; label number n is that of text number n."""

    labels: list[str]
    texts: list[str]
    files: tuple[Path, ...] = ()  # files or folders that it was read from or held out of

    @property
    def counts(self) -> labelled_counts.LabelledCounts:
        return labelled_counts.count(self.labels, self.texts)

    @property
    def sha256(self) -> str:
        """Of labels and texts, in their order."""
        digest = hashlib.sha256()
        for pair in zip(self.labels, self.texts, strict=True):
            digest.update(json.dumps(pair).encode() + b"\n")
        return digest.hexdigest()


@dataclass(frozen=True)
class LabelledTexts:
    name: str  # "imdb", or that of the user's folder or file
    classes: tuple[str, ...]
    parts: dict[str, LabelledPart]
    published: bool  # IMDb, and all that was read of it has the published counts
    notes: list[str]  # lines for the user


def read(
    data: Sequence[str | Path],
    *,
    splits: Sequence[str] = SPLITS,
    train: str | None = None,
    valid: str | None = None,
    test: str | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 1,
) -> LabelledTexts:
    """Read a labelled corpus; `labelled_rows` says which files, and how they are read.

    Training parts of several folders are joined in the order given; validation and test come from the first that has
    them. One that is missing is held out of the training part by `seed` (see `stratified.hold_out`), the same for any
    choice of `splits`; test, where it is there, is never touched for that. Repeated texts stay, and are counted.

    Args:
        data: folders or files.
        splits: what to return: train, valid (val, dev), test, or the name of a file, to be read whole.
        train, valid, test: names of the files, where they cannot be guessed.
        classes: the labels that there may be, of a model that is there already; by default those of the training part,
            in the order of `in_order`.
        seed: chooses what is held out.

    Raises:
        ValueError: the data cannot be used as asked; of kind TextError if a row is at fault, with file and line.
        OSError: a file cannot be read.
    """
    found = find_labelled(data, train=train, valid=valid, test=test)
    wanted = list(dict.fromkeys(map(canonical, splits)))
    missing = [split for split in ("valid", "test") if find_labelled_part(found, split) is None]
    notes: list[str] = []
    differences: list[str] = []
    parts = {}
    if classes is None or "train" in wanted or set(missing) & set(wanted):
        parts["train"] = whole = _read_train(found, classes, differences)
        classes = in_order(whole.labels) if classes is None else classes
        if missing:
            parts |= _hold_out(whole, missing, seed, notes)
    for split in wanted:
        if split not in parts:
            parts[split] = _read_one(found, split, classes, differences)
    kept = {split: parts[split] for split in wanted}
    name = "+".join(dict.fromkeys(each.name for each in found))
    published = len(found) == 1 and found[0].known is not None and not differences
    return LabelledTexts(name, tuple(classes), kept, published, differences + notes + _remarks(kept, classes))


def in_order(labels: Sequence[str]) -> tuple[str, ...]:
    """The different labels: by number if all are whole numbers, or else by code point.

    >>> in_order(["pos", "neg", "pos"]), in_order(["10", "9", "-1"])
    (('neg', 'pos'), ('-1', '9', '10'))
    """
    different = set(labels)
    if all(label.isascii() and label.removeprefix("-").isdigit() and len(label) < 19 for label in different):
        return tuple(sorted(different, key=lambda label: (int(label), label)))
    return tuple(sorted(different))


def _read_train(found: Sequence[CorpusFiles], classes: Sequence[str] | None, differences: list[str]) -> LabelledPart:
    """The training parts of all folders, one after the other."""
    read_parts = []
    for each in found:
        if "train" in each.files:
            read_parts.append(_read_file(each.files["train"], classes))
            _compare(each, "train", read_parts[-1], differences)
    if not read_parts:
        folder = found[0].path
        raise DataError(f"{folder} has no training part; {listing(folder)}; say which it is: train=STEM")
    whole = LabelledPart(
        [label for part in read_parts for label in part.labels],
        [text for part in read_parts for text in part.texts],
        tuple(file for part in read_parts for file in part.files),
    )
    different = len(set(whole.labels))
    if different == 1 and classes is None:
        raise DataError(
            f"{whole.files[0]}: all {len(whole.texts):,} texts have the label {whole.labels[0]!r:.60}; "
            f"a classifier needs two classes or more"
        )
    if different > max(MANY_CLASSES, len(whole.texts) / 2):
        raise DataError(
            f"{whole.files[0]}: {len(whole.texts):,} texts have {different:,} different labels, such as "
            f"{whole.labels[0]!r:.60}. Are the columns in the order label, text? A first row may name them"
        )
    return whole


def _read_one(found: Sequence[CorpusFiles], split: str, classes: Sequence[str], differences: list[str]) -> LabelledPart:
    file = find_labelled_part(found, split)
    if file is None:
        folder = found[0].path
        raise DataError(f"{folder} has no split {split!r}: neither train, valid or test nor a file; {listing(folder)}")
    part = _read_file(file, classes)
    for each in found:
        if each.files.get(split) == file:
            _compare(each, split, part, differences)
    return part


def _read_file(file: Path, classes: Sequence[str] | None) -> LabelledPart:
    """One file, or folder of labels; its labels must be among the classes, if those are known."""
    labels, texts = [], []
    known = None if classes is None else set(classes)
    for label, text, place in read_rows(file):
        if known is not None and label not in known:
            some = ", ".join(classes[:8]) + (" ..." if classes[8:] else "")
            raise TextError(f"{place}: the label {label!r:.60} is not one of those in training: {some}")
        labels.append(label)
        texts.append(text)
    if not texts:
        raise TextError(f"{file}:1: no labelled text in it. Was it copied whole?")
    return LabelledPart(labels, texts, (file,))


def _hold_out(whole: LabelledPart, missing: list[str], seed: int, notes: list[str]) -> dict[str, LabelledPart]:
    try:
        rows = hold_out(whole.labels, whole.texts, missing, seed)
    except ValueError as error:
        raise DataError(f"{whole.files[0]}: {error}") from None
    held_out = len(whole.texts) - len(rows["train"])
    notes.append(
        f"{' and '.join(missing)}: no such file, so held out of train ({held_out:,} of {len(whole.texts):,} texts, "
        f"the same share of every class, seed {seed})"
    )
    return {
        split: LabelledPart([whole.labels[row] for row in numbers], [whole.texts[row] for row in numbers], whole.files)
        for split, numbers in rows.items()
    }


def _compare(found: CorpusFiles, split: str, part: LabelledPart, differences: list[str]) -> None:
    if found.known:
        difference = labelled_counts.imdb_mismatch(split, part.counts)
        if difference:
            differences.append(f"{part.files[0]}: {difference}")


def _remarks(parts: dict[str, LabelledPart], classes: Sequence[str]) -> list[str]:
    """What there is to say about parts that can be used all the same."""
    remarks: list[str | None] = []
    for split, part in parts.items():
        remarks.append(labelled_counts.repeats(split, part.labels, part.texts))
        if absent := [label for label in classes if label not in set(part.labels)]:
            some = ", ".join(absent[:8]) + (" ..." if absent[8:] else "")
            remarks.append(f"{split}: no text has the label {some}")
        if split != "train" and "train" in parts:
            remarks.append(labelled_counts.shared("train", parts["train"].texts, split, part.texts))
    return [remark for remark in remarks if remark]
