"""The word vectors of a vocabulary, from a file that was made elsewhere, and how much of a text they cover."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from quasirnn.data.vector_files import VectorTable, read_vectors
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import DataError

# A file is one of lower-case words if no more than this share of its words is not: some have a few names among them.
STRAY_CASED = 0.01


@dataclass(frozen=True)
class WordVectors:
    """A vector for every token of a vocabulary."""

    vectors: Tensor  # (V, D), float32
    found: Tensor  # (V,), bool: those that come from the file
    uncased: bool  # the file has words in lower case alone, and words were looked up so
    words: int  # V without special tokens
    running: float | None  # share of the running tokens that have a vector from the file, if their counts were given
    notes: list[str]  # lines for the user, the first on what was found

    @property
    def distinct(self) -> float:
        """The share of the vocabulary's words that have a vector from the file."""
        return int(self.found.sum()) / self.words

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
    """Read the vectors of a vocabulary's words; the formats are those of `vector_files`.

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

    found = torch.tensor([token in rows for token in vocabulary.tokens])
    known = torch.stack([torch.from_numpy(rows[token]) for token in vocabulary.tokens if token in rows])
    deviation = known.std(correction=0).item()
    vectors = torch.randn(len(vocabulary), table.dimension, generator=torch.Generator().manual_seed(seed)) * deviation
    vectors[found] = known
    padding = vocabulary.special("padding")
    if padding is not None:
        vectors[padding] = 0
    running = None if token_counts is None else (token_counts[found].sum() / token_counts.sum()).item()
    summary = _summary(path, table.dimension, len(rows), len(words), running, uncased)
    return WordVectors(vectors, found, uncased, len(words), running, [summary, *table.notes])


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
