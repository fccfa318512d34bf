"""The text of each part of a corpus, before it is numbered: read from files, cut out, or built in."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quasirnn.data import topics
from quasirnn.data.corpus_files import SPLITS, CorpusFiles, find_part, listing
from quasirnn.data.errors import DataError
from quasirnn.data.held_out import cut
from quasirnn.data.known_corpora import Counts, mismatch
from quasirnn.data.text_files import TextError, read_text
from quasirnn.data.tokens import END_OF_LINE, count_tokens


@dataclass(frozen=True)
class PartText:
    """One part of a corpus: its text, and the files that it was read from or cut out of."""

    text: str
    files: tuple[Path, ...] = ()


def read_parts(found: Sequence[CorpusFiles], wanted: Sequence[str], seed: int, notes: list[str]) -> dict[str, PartText]:
    """The wanted parts: "train", "valid", "test" or the stems of files; what there is to say is added to `notes`.

    A validation or test part that is not there as a file is cut from the training text. Which parts are wanted makes no
    difference to what is cut.
    """
    missing = [split for split in ("valid", "test") if find_part(found, split) is None]
    parts = {}
    for split in wanted:
        if split != "train" and split not in missing:
            parts[split] = _read_one(found, split, notes)
    if "train" in wanted or set(missing) & set(wanted):
        whole = _read_train(found, notes)
        parts["train"] = whole
        if missing:
            try:
                left, held_out = cut(whole.text, missing, seed)
            except ValueError as error:
                raise DataError(f"{whole.files[0]}: {error}") from None
            parts["train"] = PartText(left, whole.files)
            parts |= {split: PartText(text, whole.files) for split, text in held_out.items()}
            share = len("".join(held_out.values())) / len(whole.text)
            notes.append(f"{' and '.join(missing)}: no such file, so cut from train ({share:.0%} of it, seed {seed})")
    return {split: parts[split] for split in wanted}


def built_in_parts(wanted: Sequence[str]) -> dict[str, PartText]:
    """The parts of the corpus that ships inside every Python."""
    strangers = [split for split in wanted if split not in SPLITS]
    if strangers:
        raise DataError(f"the built-in corpus has the splits {', '.join(SPLITS)}, not {strangers[0]!r}")
    text = topics.load()
    return {split: PartText(getattr(text, split)) for split in wanted}


def line_count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n") and text != "")


def finish_line(text: str) -> str:
    """The text with the end of its last line, which a file may lack."""
    return text if text.endswith("\n") or not text else text + "\n"


def _read_one(found: Sequence[CorpusFiles], split: str, notes: list[str]) -> PartText:
    file = find_part(found, split)
    if file is None:
        folder = found[0].path
        raise DataError(f"{folder} has no split {split!r}: neither train, valid or test nor a file; {listing(folder)}")
    text = _read_file(file)
    for each in found:
        if each.known and each.files.get(split) == file:
            _compare(each.known, split, file, text, notes)
    return PartText(text, (file,))


def _read_train(found: Sequence[CorpusFiles], notes: list[str]) -> PartText:
    """The training texts of all folders, one after the other."""
    files, texts = [], []
    for each in found:
        if "train" in each.files:
            files.append(each.files["train"])
            texts.append(_read_file(files[-1]))
            if each.known:
                _compare(each.known, "train", files[-1], texts[-1], notes)
    if not files:
        folder = found[0].path
        raise DataError(f"{folder} has no training text; {listing(folder)}; say which it is: train=STEM")
    return PartText("".join([*map(finish_line, texts[:-1]), texts[-1]]), tuple(files))


def _read_file(file: Path) -> str:
    text = read_text(file)
    if not text:
        raise TextError(f"{file}:1: the file is empty; a corpus needs text. Was it copied whole?")
    return text


def _compare(known: str, split: str, file: Path, text: str, notes: list[str]) -> None:
    words = count_tokens(finish_line(text), "word")
    counts = Counts(line_count(text), words.total(), len(words.keys() - {END_OF_LINE}))
    if difference := mismatch(known, split, counts):
        notes.append(f"{file}: {difference}")
