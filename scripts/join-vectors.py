"""Two files of word vectors side by side: join-vectors.py FIRST.npz SECOND.npz OUT.npz

A word has the numbers of both files one after the other, zeros where a file lacks it. Words of the second file are read
in lower case (the first that comes counts), and its numbers are scaled to the standard deviation of the first. The
files are those that --vectors reads: `vectors`, (N, D), and `words_utf8`, words in UTF-8 with "\\n" between them.
"""

import sys

import numpy as np


def read(path: str) -> tuple[list[str], np.ndarray]:
    with np.load(path, allow_pickle=False) as file:
        return bytes(file["words_utf8"]).decode("utf-8").split("\n"), file["vectors"].astype(np.float32)


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit("usage: join-vectors.py FIRST.npz SECOND.npz OUT.npz")
    (words, first), (others, second) = read(sys.argv[1]), read(sys.argv[2])
    row = {word: number for number, word in enumerate(words)}
    lower: dict[str, int] = {}
    for number, word in enumerate(others):
        lower.setdefault(word.lower(), number)
    for word in lower:
        row.setdefault(word, len(row))
    joined = np.zeros((len(row), first.shape[1] + second.shape[1]), np.float32)
    joined[: len(words), : first.shape[1]] = first
    joined[[row[word] for word in lower], first.shape[1] :] = second[list(lower.values())] * (
        first.std() / second.std()
    )
    text = np.frombuffer("\n".join(row).encode(), np.uint8)
    np.savez(sys.argv[3], vectors=joined.astype(np.float16), words_utf8=text)
    print(f"{sys.argv[3]}: {len(row):,} words, {joined.shape[1]} numbers each")


if __name__ == "__main__":
    main()
