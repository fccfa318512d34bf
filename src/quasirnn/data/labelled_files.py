"""Which file of a folder is which part of a labelled corpus: IMDb as it is published or packed, or a user's own."""

from collections.abc import Sequence
from pathlib import Path

from quasirnn.data.corpus_files import ARCHIVES, SPLITS, SYNONYMS, CorpusFiles, some
from quasirnn.data.errors import DataError
from quasirnn.data.labelled_rows import SUFFIXES, class_folders

IMDB = "imdb"
PACKED = "imdb.{}.tsv"
FOLDER = "aclimdb"


def find_labelled(paths: Sequence[str | Path], **stems: str | None) -> list[CorpusFiles]:
    """The parts of labelled corpora in folders, in a folder inside each, or single files, which are training parts.

    In a folder: `imdb.train.tsv` or `train.tsv`, `train.csv` or `train.jsonl`, or a folder `train` that holds one for
    each label; and so for `valid`, `val` or `dev`, and for `test`.

    Args:
        stems: train, valid, test: names of files, with or without suffix, or of such folders, where they cannot be
            guessed. A stem must be there in one of the paths.

    Raises:
        ValueError: nothing there, or more than one choice; the message lists what is there.
        OSError: there is no such folder, or it cannot be read.
    """
    given = {split: stem for split, stem in stems.items() if stem}
    found = [_find(Path(path), given) for path in paths]
    for split, stem in given.items():
        if not any(_candidates(each.path, stem) for each in found):
            folder = found[0].path
            raise DataError(f"{split}={stem}: {folder} has no file of that name; {listing(folder)}")
    return found


def find_labelled_part(found: Sequence[CorpusFiles], split: str) -> Path | None:
    """The file or folder of train, valid or test, or that of any other name, in the first place that has it."""
    for each in found:
        if split in SPLITS:
            there = [each.files[split]] if split in each.files else []
        else:
            there = _one(each.path, split, split)
        if there:
            return there[0]
    return None


def listing(folder: Path) -> str:
    """What is in a folder, for an error message."""
    if folder.is_file():
        return "it is a single file"
    names = sorted(file.name for file in folder.iterdir())
    if texts := [name for name in names if name.lower().endswith(SUFFIXES)]:
        return f"it holds {some(texts)}"
    if archives := [name for name in names if name.endswith(ARCHIVES)]:
        return f"it holds {some(archives)}, to be unpacked first"
    return f"it holds no {', '.join(SUFFIXES)} file"


def _find(path: Path, stems: dict[str, str]) -> CorpusFiles:
    if not path.is_dir():
        # Opening it now gives the system's own words for a file that is missing or locked.
        path.open("rb").close()
        if path.suffix in ARCHIVES:
            raise DataError(f"{path} is an archive: unpack it first, and give the folder")
        return CorpusFiles(path.stem, path, {"train": path}, None)
    folder = _choose_folder(path, stems)
    files = _files(folder, stems)
    if not files:
        alone = [file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES]
        if len(alone) != 1:
            remedy = "say which is which: train=STEM valid=STEM test=STEM" if alone else "expected train.tsv"
            raise DataError(f"{folder} has no labelled texts under a known name; {listing(folder)}; {remedy}")
        files["train"] = alone[0]
    name = folder.resolve().name
    is_imdb = name.lower() == FOLDER or files.get("train", files.get("test")) in _packed(folder)
    known = IMDB if is_imdb and not stems else None
    return CorpusFiles(known or name, folder, files, known)


def _choose_folder(path: Path, stems: dict[str, str]) -> Path:
    """The folder itself if it has a part, or else the only folder inside it that has one."""
    if _files(path, stems):
        return path
    inside = [child for child in sorted(path.iterdir()) if child.is_dir() and _files(child, stems)]
    if len(inside) > 1:
        raise DataError(f"{path} holds several corpora; give one of them: {some([str(child) for child in inside])}")
    return inside[0] if inside else path


def _files(folder: Path, stems: dict[str, str]) -> dict[str, Path]:
    files = {}
    for split, names in SYNONYMS.items():
        there = _one(folder, split, *([stems[split]] if split in stems else names))
        if there:
            files[split] = there[0]
    return files


def _one(folder: Path, split: str, *names: str) -> list[Path]:
    """The only part that has one of the names, or nothing."""
    there = [file for name in names for file in _candidates(folder, name)]
    if len(there) > 1:
        choices = " or ".join(f"{split}={file.name}" for file in there)
        raise DataError(f"{folder} holds {some([file.name for file in there])}; say which it is: {choices}")
    return there


def _candidates(folder: Path, name: str) -> list[Path]:
    """Whatever has that name: the packed IMDb alone if it is there, files with and without suffix, a class folder."""
    if folder.is_file():
        return [folder] if name in (folder.name, folder.stem) else []
    packed = folder / PACKED.format(name)
    if packed.is_file():
        return [packed]
    files = [file for suffix in SUFFIXES if (file := folder / (name + suffix)).is_file()]
    if name.lower().endswith(SUFFIXES) and (folder / name).is_file():
        files.append(folder / name)
    return files + ([folder / name] if class_folders(folder / name) else [])


def _packed(folder: Path) -> list[Path]:
    return [folder / PACKED.format(split) for split in SPLITS]
