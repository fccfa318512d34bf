"""Which files of a folder are which part of a corpus: by their names, in public layouts or a user's own.

A `Source` is whatever holds rows: a text file, a table, one file for each column, or a folder of folders. In a folder
the parts are called train, one of valid, val, dev and validation, and test; or have such a name as a part of their own
(`ptb.train.txt`, `mine.test-small.tsv`); or are well-known parts of public corpora. A file may be packed with
gzip (`train.tsv.gz`). Files whose name begins with a dot do not count.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quasirnn.data import known
from quasirnn.data.corpus import SPLITS, SYNONYMS, Columns, canonical
from quasirnn.data.text_files import first_line, plain_name, suffix_of
from quasirnn.errors import DataError, some
from quasirnn.files import is_regular, nearest_path

ARCHIVES = (".xz", ".tar.gz", ".tgz", ".bz2", ".zip", ".zst", ".tar")
XML = ".xml"
# Where a corpus has texts without a label, as aclImdb.
UNLABELLED = "unsup"

_LANGUAGES = re.compile(r"\.[A-Za-z]{2,3}-[A-Za-z]{2,3}$")


@dataclass(frozen=True)
class Source:
    """Files that hold rows: one path, or one for each column."""

    stem: str
    paths: tuple[Path, ...]

    @property
    def name(self) -> str:
        """Its name in messages and for the user."""
        return self.paths[0].name if len(self.paths) == 1 else self.stem

    def is_called(self, name: str) -> bool:
        return name in (self.stem, *(each for path in self.paths for each in (path.name, plain_name(path))))

    def has_in_name(self, name: str) -> bool:
        """Whether a name is a whole part of the stem: TED.tst2014 of IWSLT16.TED.tst2014.de-en."""
        return re.search(rf"(?:^|[._-]){re.escape(name)}(?:[._-]|$)", self.stem, re.IGNORECASE) is not None


@dataclass(frozen=True)
class Location:
    """A folder, or a single file, and the parts of a corpus that are there."""

    name: str
    path: Path
    parts: dict[str, tuple[Source, ...]]
    named: frozenset[str]  # the parts that the user has named
    sources: tuple[Source, ...]  # all that are there
    known: str | None  # the public corpus that this is, or is named like


def find(data: Sequence[str | Path], columns: Columns, stems: Mapping[str, str | None]) -> list[Location]:
    """The parts of corpora in folders, in a folder inside each, or single files, which are training parts.

    Args:
        stems: of train, valid and test: names of files, or parts of names that only one of them has, where they cannot
            be guessed; several with commas between. Each must be there in one of the folders.

    Raises:
        DataError: nothing there, or more than one choice; the message lists what is there.
    """
    named = {
        split: [name for each in stem.split(",") if (name := each.strip())] for split, stem in stems.items() if stem
    }
    locations = [_locate(str(path), columns, named) for path in data]
    for split, names in named.items():
        for name in names:
            if not any(_called(each.sources, name) for each in locations):
                folder = locations[0].path
                raise DataError(f"{split}={name}: {folder} has no file of that name; {listing(folder, columns)}")
    return locations


def find_part(locations: Sequence[Location], split: str) -> Location | None:
    """The location of train, valid or test, or of any other stem: as the user named it, or else the first one."""
    if split in SPLITS:
        by_name = [each for each in locations if split in each.named]
        return next(iter([*by_name, *(each for each in locations if split in each.parts)]), None)
    for each in locations:
        if source := _one(each.path, split, _called(each.sources, split)):
            return replace(each, parts={split: (source,)}, known=None)
    return None


def listing(folder: Path, columns: Columns) -> str:
    """What is in a folder, for an error message."""
    if folder.is_file():
        return "it is a single file"
    if sources := list(_sources(folder, columns)):
        return f"it contains {some([source.name for source in sources])}"
    names = sorted(file.name for file in folder.iterdir() if file.is_file())
    if archives := [name for name in names if name.endswith(ARCHIVES)]:
        return f"it contains {some(archives)}, which must be unpacked first"
    if columns.parallel and names:
        return f"it contains {some(names)}. For other languages: source=LANGUAGE target=LANGUAGE"
    return f"it contains no {', '.join(columns.suffixes)} file"


def _locate(typed: str, columns: Columns, stems: Mapping[str, list[str]]) -> Location:
    _check_exists(typed)
    path = Path(typed)
    if not path.is_dir():
        source = _single(path, columns)
        return Location(source.stem, path, {"train": (source,)}, frozenset(), (source,), None)
    folder = _choose_folder(path, columns, stems)
    sources = (*_sources(folder, columns), *_other_files(folder, columns, stems))
    chosen = {split: [_one(folder, split, _called(sources, name)) for name in names] for split, names in stems.items()}
    named = {split: tuple(filter(None, there)) for split, there in chosen.items() if any(there)}
    taken = {source for there in named.values() for source in there}
    free = [source for source in sources if source not in taken]
    guesses = {split: _guess(folder, split, free) for split in SPLITS if split not in named}
    parts = named | {split: (guess,) for split, guess in guesses.items() if guess}
    if not parts and (len(sources) == 1 or (sources and columns.running)):
        # One file is the training part. So are several text files of other names: a folder of documents.
        parts["train"] = sources
    if not sources:
        raise DataError(f"{folder} has no {columns.unit}, such as {_expected(columns)}; {listing(folder, columns)}")
    public = None if named else known.recognise(columns.names, folder, parts)
    ordered = {split: parts[split] for split in SPLITS if split in parts}
    return Location(public or folder.resolve().name, folder, ordered, frozenset(named), sources, public)


def _check_exists(typed: str) -> None:
    """DataError in our own words, with the nearest name there is, unless a path can be opened."""
    path = Path(typed)
    try:
        if path.is_dir():
            next(path.iterdir(), None)
        elif not is_regular(path):
            raise DataError(f"--data {typed}: neither a folder nor a file.")
        else:
            path.open("rb").close()
    except FileNotFoundError:
        raise DataError(f"--data {typed}: not found.{nearest_path(typed)}") from None
    except DataError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"--data {typed}: cannot be read: {reason}.") from None


def _expected(columns: Columns) -> str:
    if columns.parallel:
        return " and ".join(f"train.{suffix}" for suffix in columns.parallel.values()) + ", or train.tsv"
    return f"train{columns.suffixes[0]}"


def _single(path: Path, columns: Columns) -> Source:
    if path.name.lower().endswith(ARCHIVES):
        raise DataError(f"{path} is an archive: unpack it first, and give the folder")
    for source in _sources(path.parent, columns):
        if path in source.paths:
            return source
    if columns.parallel and "\t" not in first_line(path):
        pair = " and one in .".join(columns.parallel.values())
        raise DataError(
            f"{path} has no counterpart: {columns.unit} are read from two files, one that ends in .{pair}, or from "
            "one .tsv, .csv or .jsonl file"
        )
    # A single text file may have any name; a table is read by its suffix or its tabs, and refused there.
    return Source(Path(plain_name(path)).stem, (path,))


def _choose_folder(path: Path, columns: Columns, stems: Mapping[str, list[str]]) -> Path:
    """The folder itself if it holds rows, or else the only folder inside it that does."""
    if any(_sources(path, columns)):
        return path
    inside = [child for child in sorted(path.iterdir()) if child.is_dir() and any(_sources(child, columns))]
    if len(inside) > 1:
        raise DataError(f"{path} contains several corpora; choose one: {some([str(child) for child in inside])}")
    return inside[0] if inside else path


def _sources(folder: Path, columns: Columns) -> Iterator[Source]:
    """All sources of rows in a folder, in the order of their names."""
    there = False
    for file in sorted(folder.iterdir()):
        if file.name.startswith("."):
            continue
        if columns.folders and value_folders(file):
            there = True
            yield Source(file.name, (file,))
        if not file.is_file():
            continue
        if suffix_of(file) in columns.suffixes:
            there = True
            yield Source(Path(plain_name(file)).stem, (file,))
        if columns.parallel:
            yield from _parallel(folder, file, list(columns.parallel.values()))
    if columns.folders and not there and len(value_folders(folder)) > 1:
        name = folder.resolve().name.lower()
        yield Source(name if canonical(name) in SPLITS else "train", (folder,))


def _other_files(folder: Path, columns: Columns, stems: Mapping[str, list[str]]) -> Iterator[Source]:
    """Text files of any other suffix that the user has named."""
    for name in [name for names in stems.values() for name in names] if columns.running else []:
        if (folder / name).is_file() and not name.endswith(columns.suffixes):
            yield Source(name, (folder / name,))


def _parallel(folder: Path, file: Path, suffixes: Sequence[str]) -> Iterator[Source]:
    """The source whose first column is in this file."""
    for ending in ("", ".gz", XML):
        last = f".{suffixes[0]}{ending}"
        stem = file.name.removesuffix(last)
        others = [folder / f"{stem}.{suffix}{ending}" for suffix in suffixes[1:]]
        if file.name.endswith(last) and stem and all(other.is_file() for other in others):
            yield Source(stem, (file, *others))


def value_folders(folder: Path) -> list[Path]:
    """The folders inside a folder that hold .txt files, sorted: one for each value of a column."""
    if not folder.is_dir():
        return []
    inside = [child for child in sorted(folder.iterdir()) if child.name != UNLABELLED and child.name[0] != "."]
    return [child for child in inside if child.is_dir() and next(child.glob("*.txt"), None)]


def _guess(folder: Path, split: str, sources: Iterable[Source]) -> Source | None:
    sources = list(sources)
    names = SYNONYMS[split]
    # Beside ptb.train.txt there may be a ptb.char.train.txt.
    published = [source for source in sources if source.paths[0].name in known.text_files(names)]
    # IWSLT's archives also have a train.en, of text that is not paired.
    tagged = [source for source in sources if split == "train" and source.stem.startswith(known.TAGGED)]
    plain = [source for source in sources if _LANGUAGES.sub("", source.stem).lower() in names]
    public = [source for source in sources if any(map(source.has_in_name, known.SETS[split]))]
    partly = [source for source in sources if any(map(source.has_in_name, names))]
    return _one(folder, split, published or tagged or plain or public or partly)


def _called(sources: Iterable[Source], name: str) -> list[Source]:
    """Those that have a name, or else those that have it in their name."""
    sources = list(sources)
    return [each for each in sources if each.is_called(name)] or [each for each in sources if each.has_in_name(name)]


def _one(folder: Path, split: str, there: list[Source]) -> Source | None:
    """The only one, if there is one."""
    if len(there) > 1:
        names = [source.name for source in there]
        if len(set(names)) < len(names):
            names = [source.paths[0].name for source in there]
        choices = " or ".join(f"{split}={name}" if split in SPLITS else name for name in names[:4])
        raise DataError(f"{folder} contains {some(names)}; choose one: {choices}")
    return there[0] if there else None
