"""Translations as text: all parts of a corpus read and checked, missing ones held out, notes on the rest."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quasirnn.data.corpus_files import SPLITS, canonical
from quasirnn.data.errors import DataError
from quasirnn.data.paired_files import PairedFiles, PairFiles, find_paired, find_paired_part, listing
from quasirnn.data.paired_rows import Pair, read_pairs
from quasirnn.data.stratified import hold_out

# How much of a training part each missing part is, and the most pairs: enough for a figure, and soon translated.
SHARE = 0.05
MOST = 2_000


@dataclass(frozen=True)
class PairedPart:
    """One part of a corpus; target number n translates source number n, and neither is empty."""

    pairs: list[Pair]
    files: tuple[Path, ...] = ()  # that it was read from or held out of

    @property
    def sources(self) -> list[str]:
        return [pair.source for pair in self.pairs]

    @property
    def targets(self) -> list[str]:
        return [pair.target for pair in self.pairs]

    @property
    def sha256(self) -> str:
        """Of both sides, in their order."""
        digest = hashlib.sha256()
        for pair in self.pairs:
            digest.update(json.dumps(pair).encode() + b"\n")
        return digest.hexdigest()


@dataclass(frozen=True)
class PairedTexts:
    name: str  # "iwslt", or that of the user's folder or file
    parts: dict[str, PairedPart]
    notes: list[str]  # lines for the user


def read(
    data: Sequence[str | Path],
    *,
    splits: Sequence[str] = SPLITS,
    train: str | None = None,
    valid: str | None = None,
    test: str | None = None,
    source: str = "de",
    target: str = "en",
    max_length: int | None = 300,
    seed: int = 1,
) -> PairedTexts:
    """Read a corpus of translations; `paired_files` says which files, and `paired_rows` how they are read.

    Training parts of several folders are joined in the order given; validation and test come from the first that has
    them as files. A folder with a training part that lacks one of these has it held out of its own training part by
    `seed`, the same for any choice of `splits` and whatever other folders there are: so a folder that was a share of
    the training data has a test of its own still. Without any file, the held-out parts of all folders are joined.

    All pairs with the same target are on one side, over all folders. Pairs with an empty side are left out. Pairs with
    a side of more than `max_length` characters are left out of train, and of nothing else.

    Args:
        data: folders or files.
        splits: what to return: train, valid (val, dev), test, or the stem of files, to be read whole.
        train, valid, test: stems of the files, where they cannot be guessed; several with commas between.
        source, target: the languages, as the files have them at the end of their names.
        max_length: None leaves no pair out.
        seed: chooses what is held out.

    Raises:
        DataError: the data cannot be used as asked; of kind TextError if a line is at fault, with file and line.
        OSError: a file cannot be read.
    """
    found = find_paired(data, source, target, train=train, valid=valid, test=test)
    wanted = list(dict.fromkeys(map(canonical, splits)))
    reader = _Reader(source, target)
    parts = {}
    absent = {split for split in ("valid", "test") if find_paired_part(found, split) is None}
    if "train" in wanted or absent & set(wanted):
        if not any("train" in each.files for each in found):
            folder = found[0].path
            shown = listing(folder, source, target)
            raise DataError(
                f"{folder} has no training part; {shown}; say which is which: train=STEM valid=STEM test=STEM"
            )
        parts = _read_train(found, reader, seed)
        if max_length is not None and "train" in wanted:
            parts["train"] = _without_long(parts["train"], max_length, reader.notes)
    for split in wanted:
        if split not in {"train", *absent}:
            parts[split] = _read_one(found, split, reader)
    kept = {split: parts[split] for split in wanted}
    name = "+".join(dict.fromkeys(each.name for each in found))
    return PairedTexts(name, kept, [*reader.notes, *_remarks(kept)])


class _Reader:
    """Reads files, leaves out pairs with an empty side, and takes notes."""

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        self.notes: list[str] = []

    def read(self, split: str, files: Iterable[PairFiles]) -> PairedPart:
        pairs: list[Pair] = []
        paths: list[Path] = []
        for each in files:
            there = read_pairs(each, self.source, self.target)
            full = [pair for pair in there if pair.source and pair.target]
            if not full:
                raise DataError(f"{each.source}: all of its {len(there):,} pairs have an empty side")
            if empty := len(there) - len(full):
                self.notes.append(
                    f"{split}: {empty:,} of {len(there):,} pairs of {each.name} left out, as a side is empty"
                )
            pairs += full
            paths += each.paths
        return PairedPart(pairs, tuple(paths))


def _read_train(found: Sequence[PairedFiles], reader: _Reader, seed: int) -> dict[str, PairedPart]:
    """The training parts of all folders, and what each has to have held out of it, each joined."""
    joined: dict[str, list[PairedPart]] = {"train": [], "valid": [], "test": []}
    for each in found:
        if "train" in each.files:
            whole = reader.read("train", each.files["train"])
            missing = [split for split in ("valid", "test") if split not in each.files]
            held_out = _hold_out(each, whole, missing, seed, reader.notes) if missing else {"train": whole}
            for split, part in held_out.items():
                joined[split].append(part)
    parts = {split: _join(some) for split, some in joined.items() if some}
    if len(joined["train"]) > 1:
        away = {pair.target for split in ("valid", "test") if split in parts for pair in parts[split].pairs}
        left = [pair for pair in parts["train"].pairs if pair.target not in away]
        if gone := len(parts["train"].pairs) - len(left):
            reader.notes.append(f"train: {gone:,} pairs left out, as another folder has their target sentence held out")
            parts["train"] = PairedPart(left, parts["train"].files)
    return parts


def _join(parts: Sequence[PairedPart]) -> PairedPart:
    return PairedPart(
        [pair for part in parts for pair in part.pairs], tuple(file for part in parts for file in part.files)
    )


def _hold_out(
    found: PairedFiles, whole: PairedPart, missing: list[str], seed: int, notes: list[str]
) -> dict[str, PairedPart]:
    pairs = whole.pairs
    share = min(SHARE, MOST / len(pairs))
    try:
        rows = hold_out([""] * len(pairs), whole.targets, missing, seed, share)
    except ValueError:
        raise DataError(
            f"{found.path}: {len(pairs)} pairs are too few to hold {' and '.join(missing)} out. "
            f"Give files of their own, or say which they are: {' '.join(f'{split}=STEM' for split in missing)}"
        ) from None
    notes.append(
        f"{found.name}: no {' or '.join(missing)}, so held out of its train ({len(pairs) - len(rows['train']):,} of "
        f"{len(pairs):,} pairs, no target sentence on both sides, seed {seed})"
    )
    return {split: PairedPart([pairs[row] for row in numbers], whole.files) for split, numbers in rows.items()}


def _without_long(part: PairedPart, max_length: int, notes: list[str]) -> PairedPart:
    kept = [pair for pair in part.pairs if max(map(len, pair)) <= max_length]
    if not kept:
        raise DataError(f"{part.files[0]}: every pair has a side of more than max_length = {max_length} characters")
    if left_out := len(part.pairs) - len(kept):
        notes.append(
            f"train: {left_out:,} of {len(part.pairs):,} pairs left out, as a side has more than max_length = "
            f"{max_length} characters"
        )
    return PairedPart(kept, part.files)


def _read_one(found: Sequence[PairedFiles], split: str, reader: _Reader) -> PairedPart:
    files = find_paired_part(found, split)
    if files is None:
        folder = found[0].path
        raise DataError(
            f"{folder} has no split {split!r}: neither train, valid or test nor the stem of files; "
            f"{listing(folder, reader.source, reader.target)}"
        )
    return reader.read(split, files)


def _remarks(parts: dict[str, PairedPart]) -> Iterator[str]:
    """What there is to say about parts that can be used all the same."""
    known = set(parts["train"].targets) if "train" in parts else set()
    for split, part in parts.items():
        both = sum(target in known for target in part.targets) if split != "train" else 0
        if both:
            yield f"{split}: {both:,} of {len(part.pairs):,} target sentences are in train as well"
