"""Files of word vectors: GloVe's text, read line by line, or a `.npz`; of either only the words that are asked for.

Text: a word and its numbers on a line, a space between all of them. A word may have spaces inside, as some of GloVe
840B do: the numbers are the last D of the line, and D is that of the first line. A first line of two whole numbers, as
word2vec and fastText write it, says how many words follow and what D is.

`.npz`: `vectors`, (N, D), of any float type, and `words_utf8`, uint8: the N words in UTF-8 with "\\n" between them.
"""

import zipfile
import zlib
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from quasirnn.data.sources import ARCHIVES
from quasirnn.data.text_files import read_lines
from quasirnn.errors import DataError, TextError, one_line
from quasirnn.files import is_regular

# Of the words of a .npz, some ten million; and of one vector.
MAX_WORD_BYTES, MAX_DIMENSION = 2**28, 65_536


@dataclass
class VectorTable:
    """What was found in a file. Of a word that comes twice the first vector holds."""

    dimension: int = 0
    rows: dict[str, np.ndarray] = field(default_factory=dict)  # by word, (D,), float32
    words: int = 0  # all of the file
    cased: int = 0  # those that are not in lower case
    notes: list[str] = field(default_factory=list)

    def see(self, word: str, wanted: Set[str], place: str, repeated: list[str]) -> bool:
        """Count a word; whether its vector is to be kept."""
        self.words += 1
        self.cased += word != word.lower()
        if word in self.rows:
            repeated.append(f"{place}: {word!r:.60}")
            return False
        return word in wanted

    def note_repeated(self, repeated: list[str]) -> None:
        if repeated:
            more = f", and {len(repeated) - 1:,} more" if repeated[1:] else ""
            self.notes.append(f"{repeated[0]} occurs a second time{more}; the first vector of a word is used")


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
    repeated: list[str] = []
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
            # To say at once if this is no file of vectors.
            _numbers(line.split(" ")[1:], place)
        word = _word(line, table.dimension, place)
        if table.see(word, wanted, place, repeated):
            table.rows[word] = _numbers(line[len(word) + 1 :].split(" "), place)
    if table.words == 0:
        raise TextError(f"{path}:1: contains no word vectors. Is the file complete?")
    if promised is not None and promised != table.words:
        table.notes.append(
            f"{path}:1: the header says {promised:,} words, but there are {table.words:,}. Is the file complete?"
        )
    table.note_repeated(repeated)
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
    repeated: list[str] = []
    for number, word in enumerate(words):
        row = _read_exactly(file, shape[1] * dtype.itemsize)
        place = f"{path}: row {number}"
        if table.see(word, wanted, place, repeated):
            vector = np.frombuffer(row, dtype).astype(np.float32)
            if not np.isfinite(vector).all():
                raise DataError(f"{place}: the vector of {word!r:.60} contains a number that is not finite")
            table.rows[word] = vector
    table.note_repeated(repeated)
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
