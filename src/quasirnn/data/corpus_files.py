"""Which file of a folder is which part of a corpus: public layouts, a user's own, or a single file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quasirnn.data.errors import DataError
from quasirnn.data.known_corpora import recognise

SYNONYMS = {"train": ("train",), "valid": ("valid", "val", "dev"), "test": ("test",)}
SPLITS = tuple(SYNONYMS)

# File names by layout, in the order in which they are looked for, with the known corpus that has them.
LAYOUTS = {"ptb.{}.txt": "ptb", "wiki.{}.tokens": "wikitext-2", "wiki.{}.raw": None, "{}.txt": None}
# Known corpora that also go about as train.txt, valid.txt and test.txt, in a folder of one of these names.
FOLDERS = {"ptb": "ptb", "penn": "ptb", "wikitext-2": "wikitext-2"}

SUFFIXES = (".txt", ".tokens", ".raw")
ARCHIVES = (".xz", ".gz", ".tgz", ".bz2", ".zip", ".zst", ".tar")


@dataclass(frozen=True)
class CorpusFiles:
    """The parts of a corpus that are there as files."""

    name: str
    path: Path  # the folder that holds them, or the single file
    files: dict[str, Path]  # by "train", "valid", "test"
    known: str | None  # the public corpus that this is, or is named like


def find_corpus(path: str | Path, **stems: str | None) -> CorpusFiles:
    """The parts of a corpus in a folder, in a folder inside it, or a single file, which is then the training part.

    Known layouts: `ptb.train.txt`, `wiki.train.tokens`, `wiki.train.raw` and `train.txt`, each with `valid`, `val` or
    `dev`, and with `test`. A training part with the very bytes of a public corpus is that corpus under any name.

    Args:
        path: the folder or the file.
        stems: train, valid, test: file names without their suffix, where they cannot be guessed.

    Raises:
        DataError: nothing there, or more than one choice; the message lists what is there.
        OSError: there is no such folder, or it cannot be read.
    """
    return find_corpora([path], **stems)[0]


def find_corpora(paths: Sequence[str | Path], **stems: str | None) -> list[CorpusFiles]:
    """`find_corpus` for several folders; a stem must be there in one of them, the others do without it."""
    given = {split: stem for split, stem in stems.items() if stem}
    found = [_find(Path(path), given) for path in paths]
    for split, stem in given.items():
        if not any(_by_stem(each.path, stem) for each in found):
            folder = found[0].path
            raise DataError(f"{split}={stem}: {folder} has no file of that name; {listing(folder)}")
    return found


def find_part(found: Sequence[CorpusFiles], split: str) -> Path | None:
    """The file of train, valid or test, or that with any other stem, in the first folder that has it."""
    for each in found:
        file = each.files.get(split) if split in SPLITS else _by_stem(each.path, split)
        if file:
            return file
    return None


def canonical(split: str) -> str:
    """train, valid or test for any of their names; the stem of a file stays as it is."""
    return next((name for name, names in SYNONYMS.items() if split in names), split)


def _find(path: Path, stems: dict[str, str]) -> CorpusFiles:
    if not path.is_dir():
        # Opening it now gives the system's own words for a file that is missing or locked.
        path.open("rb").close()
        if path.suffix in ARCHIVES:
            raise DataError(f"{path} is an archive: unpack it first, and give the folder")
        return CorpusFiles(path.stem, path, {"train": path}, None)
    folder, layout = _choose_folder(path, stems)
    files = _files(folder, layout, stems) if layout else {}
    files |= {split: file for split, stem in stems.items() if (file := _by_stem(folder, stem))}
    if not files:
        texts = [file for file in folder.iterdir() if file.suffix == ".txt"]
        if len(texts) != 1:
            remedy = "say which is which: train=STEM valid=STEM test=STEM" if texts else "expected train.txt"
            raise DataError(f"{folder} has no train.txt or other known layout; {listing(folder)}; {remedy}")
        files["train"] = texts[0]
    known = None if stems else _known(folder, layout, files)
    return CorpusFiles(known or folder.resolve().name, folder, files, known)


def _choose_folder(path: Path, stems: dict[str, str]) -> tuple[Path, str | None]:
    """The folder itself if a layout or a stem is there, or else the only folder inside it that has a layout."""
    layout = _layout(path)
    if layout or any(_by_stem(path, stem) for stem in stems.values()):
        return path, layout
    inside = [(child, _layout(child)) for child in sorted(path.iterdir()) if child.is_dir()]
    inside = [(child, layout) for child, layout in inside if layout]
    if len(inside) > 1:
        raise DataError(f"{path} holds several corpora; give one of them: {some([str(child) for child, _ in inside])}")
    return inside[0] if inside else (path, None)


def _layout(folder: Path) -> str | None:
    """The layout with a training part, or else with any part, of which there is one."""
    for splits in (("train",), ("valid", "test")):
        for layout in LAYOUTS:
            if any((folder / layout.format(name)).is_file() for split in splits for name in SYNONYMS[split]):
                return layout
    return None


def _files(folder: Path, layout: str, stems: dict[str, str]) -> dict[str, Path]:
    files = {}
    for split, names in SYNONYMS.items():
        there = [file for name in names if (file := folder / layout.format(name)).is_file()]
        if len(there) > 1 and split not in stems:
            choices = " or ".join(f"{split}={file.stem}" for file in there)
            raise DataError(f"{folder} holds {some([file.name for file in there])}; say which it is: {choices}")
        if there:
            files[split] = there[0]
    return files


def _known(folder: Path, layout: str | None, files: dict[str, Path]) -> str | None:
    name = recognise(files["train"]) if "train" in files else None
    if name is None and layout is not None:
        name = LAYOUTS[layout] or FOLDERS.get(folder.resolve().name.lower())
        # WikiText-103 has the file names of its smaller sister.
        if "103" in folder.resolve().name:
            return None
    return name


def _by_stem(folder: Path, stem: str) -> Path | None:
    if folder.is_file():
        return folder if stem in (folder.name, folder.stem) else None
    return next((file for suffix in (*SUFFIXES, "") if (file := folder / (stem + suffix)).is_file()), None)


def listing(folder: Path) -> str:
    """What is in a folder, for an error message."""
    if not folder.is_dir():
        return "it is a single file"
    names = sorted(file.name for file in folder.iterdir())
    if texts := [name for name in names if name.endswith(SUFFIXES)]:
        return f"it holds {some(texts)}"
    if archives := [name for name in names if name.endswith(ARCHIVES)]:
        return f"it holds {some(archives)}, to be unpacked first"
    return "it holds no .txt file"


def some(names: list[str]) -> str:
    """The first few of many names, for an error message."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
