"""Some dozen labelled texts in which a word tells the class, and settings that train on them in a moment."""

import csv
import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from tasks import tiny_language_model
from tasks.trained_once import trained_once

TELLING = {"bad": "dull", "fair": "usual", "good": "great"}
TWO, THREE = ("bad", "good"), ("bad", "fair", "good")
WORDS = ["the", "film", "is", "It", "'s", "a", "story", ",", "and", "music"]
ROWS = {"train": 48, "valid": 12, "test": 18}
# 6 steps an epoch; what is not here follows the size of the data.
KEYS = (
    "dropout=0.4 word_init=random word_dropout=0 dense=true patience=none hidden_size=8 num_layers=2 "
    "embedding_size=8 batch_size=8 epochs=3 learning_rate=0.03 warm_up=0 min_count=1 "
    "checkpoint_every=5 precision=float32"
)

Rows = list[tuple[str, str]]


def keys(*more: str, cell: str = "qrnn") -> list[str]:
    """KEYS with some of them changed, as far as the cell has them."""
    return tiny_language_model.changed(KEYS, *["zoneout=0.1"] * (cell == "qrnn"), *more)


def labelled_rows(split: str, classes: Sequence[str] = TWO) -> Rows:
    """Label and text, the same at every call, no text twice; the classes take turns."""
    draw = random.Random(split)
    rows: Rows = []
    seen = set()
    while len(rows) < ROWS[split]:
        label = classes[len(rows) % len(classes)]
        words = [*draw.choices(WORDS, k=draw.randint(2, 7)), *[TELLING[label]] * draw.randint(1, 3)]
        draw.shuffle(words)
        if (text := " ".join(words)) not in seen:
            seen.add(text)
            rows.append((label, text))
    return rows


def write_rows(file: Path, rows: Rows) -> None:
    """As the suffix says: .tsv without a header, .csv with one, or .jsonl."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "w", encoding="utf-8", newline="") as stream:
        if file.suffix == ".tsv":
            stream.writelines(f"{label}\t{text}\n" for label, text in rows)
        elif file.suffix == ".csv":
            csv.writer(stream).writerows([("text", "label"), *((text, label) for label, text in rows)])
        else:
            stream.writelines(json.dumps({"label": label, "text": text}) + "\n" for label, text in rows)


def write_labelled(
    folder: Path, suffix: str = ".tsv", classes: Sequence[str] = TWO, splits: Sequence[str] = tuple(ROWS)
) -> Path:
    for split in splits:
        write_rows(folder / f"{split}{suffix}", labelled_rows(split, classes))
    return folder


def write_vectors(file: Path, size: int = 8) -> dict[str, list[float]]:
    """Vectors of every word but `music`, in lower case, and of one that no text has; .txt or .npz. By word."""
    draw = random.Random(3)
    words = ["zebra", *(word.lower() for word in (*WORDS, *TELLING.values()) if word != "music")]
    vectors = {word: [round(draw.gauss(0, 1), 3) for _ in range(size)] for word in words}
    if file.suffix == ".npz":
        text = np.frombuffer("\n".join(vectors).encode(), np.uint8)
        np.savez(file, words_utf8=text, vectors=np.array(list(vectors.values()), np.float32))
    else:
        file.write_text("".join(f"{word} {' '.join(map(str, row))}\n" for word, row in vectors.items()))
    return vectors


train_tiny = partial(tiny_language_model.train_tiny, task="sentiment", keys=keys)


@trained_once
def train_runs(folder: Path) -> None:
    """`qrnn`, `lstm` and `three` (classes), trained on `two-classes` and `three-classes` beside them.

    To be left as they are: asked again, they are the same.
    """
    two = write_labelled(folder / "two-classes")
    three = write_labelled(folder / "three-classes", ".jsonl", THREE)
    train_tiny(folder / "qrnn", two)
    train_tiny(folder / "lstm", two, cell="lstm")
    train_tiny(folder / "three", three)
