"""Which files of a folder are which part of a corpus of translations: by their names, in one of three forms.

- Two files that differ in the language at the end of their names, as `train.de` and `train.en`: the stem is `train`.
- The same of IWSLT's XML, as `IWSLT16.TED.tst2014.de-en.de.xml`, and `train.tags.de-en.de`.
- One file of two columns, `train.tsv`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quasirnn.data.corpus_files import ARCHIVES, SPLITS, SYNONYMS, some
from quasirnn.data.errors import DataError

COLUMNS = ".tsv"
XML = ".xml"
TAGGED = "train.tags."

IWSLT = "iwslt"
# Names of public corpora for parts that have no plain one: the sets of IWSLT that the paper uses (section 3.3), and the
# usual one of Multi30k's tests.
KNOWN = {"train": (), "valid": ("TED.tst2013",), "test": ("TED.tst2014", "test_2016_flickr")}

_LANGUAGES = re.compile(r"\.[A-Za-z]{2,3}-[A-Za-z]{2,3}$")


@dataclass(frozen=True)
class PairFiles:
    """Where both sides of some pairs are."""

    stem: str
    source: Path
    target: Path  # the same file, if both sides are columns of one

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.source, self.target)))

    @property
    def name(self) -> str:
        """What it is called in messages, and may be called by a user."""
        return self.source.name if self.source == self.target else self.stem

    def is_called(self, name: str) -> bool:
        return name in (self.stem, *(path.name for path in self.paths))

    def has_in_name(self, name: str) -> bool:
        """Whether a name is a whole part of the stem: TED.tst2014 of IWSLT16.TED.tst2014.de-en."""
        return re.search(rf"(?:^|[._-]){re.escape(name)}(?:[._-]|$)", self.stem) is not None


@dataclass(frozen=True)
class PairedFiles:
    """The parts of a corpus that are there as files."""

    name: str
    path: Path  # the folder that holds them, or the single file
    files: dict[str, tuple[PairFiles, ...]]  # by "train", "valid", "test"
    named: frozenset[str]  # the parts of these that the user has named
    pairs: tuple[PairFiles, ...]  # all that are there
    known: str | None  # IWSLT, if it is that


def find_paired(
    paths: Sequence[str | Path], source: str = "de", target: str = "en", **stems: str | None
) -> list[PairedFiles]:
    """The parts of corpora in folders, in a folder inside each, or single files, which are training parts.

    In a folder: train, one of valid, val and dev, and test, with or without the languages (`train.de-en.de`); IWSLT's
    training text with TED.tst2013 and TED.tst2014; Multi30k, whose test is then that of 2016. Failing that, what has
    such a name as a part of its own: `mine.train-big.de`. The only pair of files in a folder is a training part; among
    several of other names, none is.

    Args:
        source, target: the languages, as the files have them at the end of their names.
        stems: train, valid, test: stems of the files, or parts of stems that only one of them has, where they cannot be
            guessed; several with commas between. Each must be there in one of the paths; the others do without it.

    Raises:
        DataError: no pairs there, or more than one choice; the message lists what is there.
        OSError: there is no such folder, or it cannot be read.
    """
    if not source or not target or source == target:
        raise DataError(f"source and target must be two languages, got source={source!r} and target={target!r}")
    given = {
        split: [name for each in stem.split(",") if (name := each.strip())] for split, stem in stems.items() if stem
    }
    found = [_find(Path(path), source, target, given) for path in paths]
    for split, names in given.items():
        for name in names:
            if not any(_called(each.pairs, name) for each in found):
                folder = found[0].path
                raise DataError(
                    f"{split}={name}: {folder} has no files of that name; {listing(folder, source, target)}"
                )
    return found


def find_paired_part(found: Sequence[PairedFiles], split: str) -> tuple[PairFiles, ...] | None:
    """The files of train, valid or test, or those of any other stem: as named, or else in the first place."""
    if split in SPLITS:
        by_name = [each.files[split] for each in found if split in each.named]
        by_guess = [each.files[split] for each in found if split in each.files]
        return next(iter(by_name + by_guess), None)
    for each in found:
        if there := _one(each.path, split, _called(each.pairs, split)):
            return (there,)
    return None


def listing(folder: Path, source: str, target: str) -> str:
    """What is in a folder, for an error message."""
    if folder.is_file():
        return "it is a single file"
    names = sorted(file.name for file in folder.iterdir() if file.is_file())
    if pairs := list(_pairs(folder, source, target)):
        return f"it holds {some([pair.name for pair in pairs])}"
    if archives := [name for name in names if name.endswith(ARCHIVES)]:
        return f"it holds {some(archives)}, to be unpacked first"
    if not names:
        return "it holds no file"
    return f"it holds {some(names)}. Other languages: source=LANGUAGE target=LANGUAGE"


def _find(path: Path, source: str, target: str, stems: dict[str, list[str]]) -> PairedFiles:
    if not path.is_dir():
        pair = _single(path, source, target)
        return PairedFiles(pair.stem, path, {"train": (pair,)}, frozenset(), (pair,), None)
    folder = _choose_folder(path, source, target)
    pairs = tuple(_pairs(folder, source, target))
    if not pairs:
        raise DataError(
            f"{folder} has no pairs of {source} and {target}, such as train.{source} and train.{target}, or "
            f"train{COLUMNS}; {listing(folder, source, target)}"
        )
    named = _named(folder, pairs, stems)
    taken = {pair for chosen in named.values() for pair in chosen}
    free = [pair for pair in pairs if pair not in taken]
    guesses = {split: _guess(folder, split, free) for split in SPLITS if split not in named}
    files = named | {split: (guess,) for split, guess in guesses.items() if guess}
    if not files and len(pairs) == 1:
        files["train"] = pairs
    is_iwslt = any(pair.source.name.startswith(TAGGED) for pair in files.get("train", ()))
    known = IWSLT if is_iwslt and not named else None
    ordered = {split: files[split] for split in SPLITS if split in files}
    return PairedFiles(known or folder.resolve().name, folder, ordered, frozenset(named), pairs, known)


def _named(folder: Path, pairs: Iterable[PairFiles], stems: dict[str, list[str]]) -> dict[str, tuple[PairFiles, ...]]:
    """The parts that the user has named, as far as this folder has them."""
    chosen = {split: [_one(folder, split, _called(pairs, name)) for name in names] for split, names in stems.items()}
    return {split: tuple(filter(None, some_pairs)) for split, some_pairs in chosen.items() if any(some_pairs)}


def _single(path: Path, source: str, target: str) -> PairFiles:
    # Opening it now gives the system's own words for a file that is missing or locked.
    path.open("rb").close()
    if path.suffix in ARCHIVES:
        raise DataError(f"{path} is an archive: unpack it first, and give the folder")
    for pair in _pairs(path.parent, source, target):
        if path in pair.paths:
            return pair
    raise DataError(
        f"{path} has no other side: pairs are read from two files, one that ends in .{source} and one in .{target}, "
        f"or from one {COLUMNS} file"
    )


def _choose_folder(path: Path, source: str, target: str) -> Path:
    """The folder itself if it has pairs, or else the only folder inside it that has."""
    if any(_pairs(path, source, target)):
        return path
    inside = [child for child in sorted(path.iterdir()) if child.is_dir() and any(_pairs(child, source, target))]
    if len(inside) > 1:
        raise DataError(f"{path} holds several corpora; give one of them: {some([str(child) for child in inside])}")
    return inside[0] if inside else path


def _pairs(folder: Path, source: str, target: str) -> Iterator[PairFiles]:
    """All pairs of a folder in the order of their names."""
    for file in sorted(folder.iterdir()):
        if not file.is_file():
            continue
        if file.suffix.lower() == COLUMNS:
            yield PairFiles(file.stem, file, file)
        for ending in ("", XML):
            if file.name.endswith(f".{source}{ending}"):
                stem = file.name.removesuffix(f".{source}{ending}")
                other = folder / f"{stem}.{target}{ending}"
                if stem and other.is_file():
                    yield PairFiles(stem, file, other)


def _guess(folder: Path, split: str, pairs: Iterable[PairFiles]) -> PairFiles | None:
    names = SYNONYMS[split]
    # IWSLT's archives also have a train.en, of text that is not paired.
    tagged = [pair for pair in pairs if split == "train" and pair.source.name.startswith(TAGGED)]
    plain = [pair for pair in pairs if _LANGUAGES.sub("", pair.stem) in names]
    known = [pair for pair in pairs if any(map(pair.has_in_name, KNOWN[split]))]
    partly = [pair for pair in pairs if any(map(pair.has_in_name, names))]
    return _one(folder, split, tagged or plain or known or partly)


def _called(pairs: Iterable[PairFiles], name: str) -> list[PairFiles]:
    """Those that have a name, or else those that have it in their name."""
    return [pair for pair in pairs if pair.is_called(name)] or [pair for pair in pairs if pair.has_in_name(name)]


def _one(folder: Path, split: str, there: list[PairFiles]) -> PairFiles | None:
    """The only one, if there is one."""
    if len(there) > 1:
        names = [pair.name for pair in there]
        if len(set(names)) < len(names):
            names = [pair.source.name for pair in there]
        choices = " or ".join(f"{split}={name}" if split in SPLITS else name for name in names[:4])
        raise DataError(f"{folder} holds {some(names)}; say which it is: {choices}")
    return there[0] if there else None
