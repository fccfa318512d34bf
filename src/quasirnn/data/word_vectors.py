"""The word vectors of a vocabulary, read from a file, and how much of a text they cover.

A file is GloVe's text, read line by line, or a `.npz`; of either only the words that are asked for.

Text: a word and its numbers on a line, a space between all of them. A word may have spaces inside, as some of GloVe
840B do: the numbers are the last D of the line, and D is that of the first line. A first line of two whole numbers, as
word2vec and fastText write it, says how many words follow and what D is.

`.npz`: `vectors`, (N, D), of any float type, and `words_utf8`, uint8: the N words in UTF-8 with "\\n" between them.
"""

import hashlib
import zipfile
import zlib
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from quasirnn.data.sources import ARCHIVES
from quasirnn.data.text_files import read_lines
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import DataError, TextError, one_line
from quasirnn.files import is_regular

# A file is one of lower-case words if no more than this share of its words is not: some have a few names among them.
STRAY_CASED = 0.01
# Of the words of a .npz, some ten million; and of one vector.
MAX_WORD_BYTES, MAX_DIMENSION = 2**28, 65_536


@dataclass
class VectorTable:
    """What was read from a file. If a word occurs twice, its first vector counts."""

    dimension: int = 0
    rows: dict[str, np.ndarray] = field(default_factory=dict)  # by word, (D,), float32
    words: int = 0  # all of the file
    cased: int = 0  # those that are not in lower case
    notes: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)  # places of words that come again

    def see(self, word: str, wanted: Set[str], place: str) -> bool:
        """Count a word; returns whether to keep its vector."""
        self.words += 1
        self.cased += word != word.lower()
        if word in self.rows:
            self.repeated.append(f"{place}: {word!r:.60}")
            return False
        return word in wanted

    def note_repeated(self) -> None:
        if self.repeated:
            more = f", and {len(self.repeated) - 1:,} more" if self.repeated[1:] else ""
            self.notes.append(f"{self.repeated[0]} occurs a second time{more}; the first vector of a word is used")


def read_vectors(path: str | Path, wanted: Set[str]) -> VectorTable:
    """The vectors of the words that are wanted. Those of others are not looked at, beyond the length of their line.

    Raises:
        ValueError: in one line that begins with the file; of kind TextError, with the line, for text.
        OSError: the file cannot be read.
    """
    path = Path(path)
    if not is_regular(path):
        raise DataError(f"{path}: not a file.")
    if path.suffix == ".npz":
        return _from_arrays(path, wanted)
    if path.name.lower().endswith(ARCHIVES):
        raise DataError(f"{path} is an archive: unpack it first, and give the .txt file inside")
    return _from_text(path, wanted)


def _from_text(path: Path, wanted: Set[str]) -> VectorTable:
    table, promised = VectorTable(), None
    for number, line in enumerate(read_lines(path), 1):
        # fastText ends its lines with a space.
        line = line.rstrip(" ")
        place = f"{path}:{number}"
        if not line:
            continue
        if table.dimension == 0:
            header = line.split(" ")
            if promised is None and len(header) == 2 and all(part.isdecimal() and len(part) < 10 for part in header):
                promised, table.dimension = map(int, header)
                continue
            table.dimension = line.count(" ")
            # Fail early if this is not a file of vectors.
            _numbers(line.split(" ")[1:], place)
        word = _word(line, table.dimension, place)
        if table.see(word, wanted, place):
            table.rows[word] = _numbers(line[len(word) + 1 :].split(" "), place)
    if table.words == 0:
        raise TextError(f"{path}:1: contains no word vectors. Is the file complete?")
    if promised is not None and promised != table.words:
        table.notes.append(
            f"{path}:1: the header says {promised:,} words, but there are {table.words:,}. Is the file complete?"
        )
    table.note_repeated()
    return table


def _word(line: str, dimension: int, place: str) -> str:
    """The word of a line: all that is before its last `dimension` numbers."""
    numbers = line.count(" ")
    if numbers == dimension > 0:
        return line[: line.index(" ")]
    if numbers > dimension > 0:
        word = line.rsplit(" ", dimension)[0]
        last = word[word.rindex(" ") + 1 :]
        if last and not _is_number(last):
            return word
    raise TextError(
        f"{place}: expected a word and {dimension or 'its'} numbers, as on the first line, got {numbers} after "
        f"{line.split(' ', 1)[0]!r:.60}"
    )


def _numbers(parts: list[str], place: str) -> np.ndarray:
    if not parts:
        raise TextError(f"{place}: expected a word and its numbers, separated by spaces, got a single word")
    try:
        with np.errstate(over="ignore"):
            vector = np.array([float(part) for part in parts]).astype(np.float32)
    except ValueError:
        strange = next(part for part in parts if not _is_number(part))
        raise TextError(f"{place}: {strange!r:.60} is not a number") from None
    if not np.isfinite(vector).all():
        strange = parts[int(np.isfinite(vector).argmin())]
        raise TextError(f"{place}: {strange:.60} is not a finite number of float32")
    return vector


def _is_number(part: str) -> bool:
    try:
        float(part)
    except ValueError:
        return False
    return True


def _from_arrays(path: Path, wanted: Set[str]) -> VectorTable:
    with path.open("rb") as stream, _sound(path), zipfile.ZipFile(stream) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        if not {"words_utf8", "vectors"} <= set(names):
            raise DataError(f"{path}: expected the arrays vectors and words_utf8, got {', '.join(names)}")
        with archive.open("words_utf8.npy") as file:
            words = _read_words(path, file)
        with archive.open("vectors.npy") as file:
            return _read_rows(path, file, words, wanted)


def _read_words(path: Path, file: IO[bytes]) -> list[str]:
    shape, dtype = _header(path, "words_utf8", file)
    if dtype != np.uint8 or len(shape) != 1:
        raise DataError(f"{path}: words_utf8 must be bytes, uint8 (M,), got {dtype} of shape {shape}")
    if shape[0] > MAX_WORD_BYTES:
        raise DataError(f"{path}: words_utf8 has {shape[0]:,} bytes, more than {MAX_WORD_BYTES:,}")
    try:
        return _read_exactly(file, shape[0]).decode().split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: words_utf8 is not UTF-8 at byte {error.start}") from None


def _read_rows(path: Path, file: IO[bytes], words: list[str], wanted: Set[str]) -> VectorTable:
    """Row by row: a small archive may unpack to more than there is memory, and few rows are wanted."""
    shape, dtype = _header(path, "vectors", file)
    if dtype.kind != "f" or len(shape) != 2 or 0 in shape:
        raise DataError(f"{path}: vectors must be real numbers, (N, D), got {dtype} of shape {shape}")
    if len(words) != shape[0]:
        raise DataError(f"{path}: {len(words):,} words and {shape[0]:,} vectors; must be equal")
    if shape[1] > MAX_DIMENSION:
        raise DataError(f"{path}: vectors have {shape[1]:,} numbers each, more than {MAX_DIMENSION:,}")
    table = VectorTable(dimension=shape[1])
    for number, word in enumerate(words):
        row = _read_exactly(file, shape[1] * dtype.itemsize)
        place = f"{path}: row {number}"
        if table.see(word, wanted, place):
            vector = np.frombuffer(row, dtype).astype(np.float32)
            if not np.isfinite(vector).all():
                raise DataError(f"{place}: the vector of {word!r:.60} contains a number that is not finite")
            table.rows[word] = vector
    table.note_repeated()
    return table


def _header(path: Path, name: str, file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array; its numbers follow. What is neither numbers nor in the order of C is refused."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"version {version} of .npy")
    shape, fortran_order, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded")
    if fortran_order and len(shape) > 1:
        raise DataError(f"{path}: {name} must be plain numbers in C order")
    return shape, dtype


def _read_exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError("it ends too early")
    return data


@contextmanager
def _sound(path: Path) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    # RuntimeError: an archive with a password, or of another compression.
    except (
        ValueError,
        LookupError,
        OSError,
        RuntimeError,
        EOFError,
        MemoryError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DataError(
            f"{path}: not a .npz of plain numbers ({one_line(error)[:100]}). Is the file complete?"
        ) from None


@dataclass(frozen=True)
class WordVectors:
    """A vector for every token of a vocabulary."""

    vectors: Tensor  # (V, D), float32
    in_file: Tensor  # (V,), bool: those that come from the file
    uncased: bool  # the file has words in lower case alone, and words were looked up so
    words: int  # V without special tokens
    running: float | None  # share of the running tokens that have a vector from the file, if their counts were given
    notes: list[str]  # lines for the user, the first on what was found

    @property
    def distinct(self) -> float:
        """The share of the vocabulary's words that have a vector from the file."""
        return int(self.in_file.sum()) / self.words

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.vectors.numpy().tobytes()).hexdigest()


def load(
    path: str | Path,
    vocabulary: Vocabulary,
    *,
    token_counts: Tensor | None = None,
    dimension: int | None = None,
    seed: int = 1,
) -> WordVectors:
    """Read the vectors of a vocabulary's words; the formats are those above.

    A word is looked up as it is. Where the file has words in lower case alone, and not that one, it is looked up in
    lower case: "The" and "the" stay two tokens that start with the same vector. Words without a vector get a random
    one, normal with the deviation of the numbers found, and so does the unknown token; that of padding is zero.

    Args:
        token_counts: how often each token occurs in training, (V,); for `running`.
        dimension: D, if it is given already.
        seed: of the random vectors.

    Raises:
        ValueError: the file cannot be used, in one line that begins with it, with the line where there is one.
        OSError: the file cannot be read.
    """
    special = set(vocabulary.specials.values())
    words = [token for token in vocabulary.tokens if token not in special]
    table = read_vectors(path, {form for word in words for form in (word, word.lower())})
    if dimension is not None and dimension != table.dimension:
        raise DataError(
            f"{path}: its vectors have {table.dimension} dimensions, but the model needs {dimension}. Use another "
            f"file, or embedding_size={table.dimension}"
        )
    uncased = table.cased <= STRAY_CASED * table.words
    rows = {word: row for word in words if (row := _look_up(word, table, uncased)) is not None}
    if not rows:
        raise DataError(f"{path}: none of its {table.words:,} words occurs among the {len(words):,} words of the texts")

    in_file = torch.tensor([token in rows for token in vocabulary.tokens])
    known = torch.stack([torch.from_numpy(rows[token]) for token in vocabulary.tokens if token in rows])
    deviation = known.std(correction=0).item()
    vectors = torch.randn(len(vocabulary), table.dimension, generator=torch.Generator().manual_seed(seed)) * deviation
    vectors[in_file] = known
    padding = vocabulary.special("padding")
    if padding is not None:
        vectors[padding] = 0
    running = None if token_counts is None else (token_counts[in_file].sum() / token_counts.sum()).item()
    summary = _summary(path, table.dimension, len(rows), len(words), running, uncased)
    return WordVectors(vectors, in_file, uncased, len(words), running, [summary, *table.notes])


def _look_up(word: str, table: VectorTable, uncased: bool) -> np.ndarray | None:
    row = table.rows.get(word)
    return table.rows.get(word.lower()) if row is None and uncased else row


def _summary(path: str | Path, dimension: int, found: int, words: int, running: float | None, uncased: bool) -> str:
    text = f"vectors: {found:,} of {words:,} words ({found / words:.1%})"
    if running is not None:
        text += f", {running:.1%} of the running text,"
    text += f" have a vector of {dimension} dimensions in {path}"
    if uncased:
        text += ", looked up in lower case"
    return text + ("; the others are initialised at random" if found < words else "")
