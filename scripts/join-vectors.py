"""Put tables of word vectors side by side: join-vectors.py FILE FILE ... OUT.npz

Words are in lower case. Where a table has no such word, its vector of "Word" is used, then that of "WORD", then zeros.
Every table is scaled to the standard deviation of the first, so that none outweighs the others. The files have the
formats of `train --vectors`.
"""

import sys

import numpy as np

from quasirnn.data.word_vectors import VectorTable, read_vectors


class Everything(frozenset[str]):
    def __contains__(self, word: object) -> bool:
        return True


def vector_of(word: str, table: VectorTable) -> np.ndarray | None:
    forms = (word, word.capitalize(), word.upper())
    return next((table.rows[form] for form in forms if form in table.rows), None)


def main(*paths: str) -> None:
    if len(paths) < 3 or not paths[-1].endswith(".npz"):
        sys.exit(__doc__)
    tables = [read_vectors(path, Everything()) for path in paths[:-1]]
    words = sorted({word.lower() for table in tables for word in table.rows if "\n" not in word})
    columns = []
    for table in tables:
        column = np.zeros((len(words), table.dimension), np.float32)
        known = [(row, vector) for row, word in enumerate(words) if (vector := vector_of(word, table)) is not None]
        vectors = np.stack([vector for _, vector in known])
        scale = columns[0][np.any(columns[0], axis=1)].std() / vectors.std() if columns else 1.0
        column[[row for row, _ in known]] = vectors * scale
        columns.append(column)
    vectors = np.concatenate(columns, axis=1).astype(np.float16)
    np.savez_compressed(paths[-1], vectors=vectors, words_utf8=np.frombuffer("\n".join(words).encode(), np.uint8))
    print(f"{paths[-1]}: {len(words):,} words, {vectors.shape[1]} dimensions")


main(*sys.argv[1:])
