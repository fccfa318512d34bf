"""Tunes of a few notes, in letters and in syllables, as two languages, and settings that train on them in a moment."""

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tasks import tiny_language_model
from tasks.trained_once import trained_once

NOTES = {"c": "do", "d": "ré", "e": "mi", "f": "fa", "g": "sol", "h": "si"}
PAIRS = {"train": 160, "valid": 8, "test": 12}
# 20 steps an epoch; the other keys are those of the preset `fast`.
KEYS = (
    "hidden_size=16 num_layers=2 kernel_size=3,2 batch_size=8 epochs=6 learning_rate=0.05 warm_up=0 "
    "dropout=0 min_count=1 sample=4 checkpoint_every=10 precision=float32"
)

Rows = list[tuple[str, str]]


def keys(*more: str, cell: str = "qrnn") -> list[str]:
    """KEYS with some of them changed, as far as the cell has them."""
    chosen = tiny_language_model.changed(KEYS, *more)
    return [key for key in chosen if cell != "lstm" or not key.startswith("kernel_size=")]


def paired_rows(split: str) -> Rows:
    """Source and target, the same at every call, no tune in two splits; of one to four notes."""
    draw = random.Random(1)
    tunes: dict[tuple[str, ...], None] = {}
    while len(tunes) < sum(PAIRS.values()):
        tunes[tuple(draw.choices(list(NOTES), k=draw.choice([1, 2, 3, 3, 4])))] = None
    first = sum(list(PAIRS.values())[: list(PAIRS).index(split)])
    chosen = list(tunes)[first : first + PAIRS[split]]
    return [(" ".join(tune), " ".join(NOTES[note] for note in tune)) for tune in chosen]


def write_pairs(folder: Path, stem: str, rows: Rows, languages: tuple[str, str] = ("de", "en")) -> None:
    """Two files, a tune a line."""
    folder.mkdir(parents=True, exist_ok=True)
    for language, side in zip(languages, zip(*rows, strict=True), strict=True):
        (folder / f"{stem}.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")


def write_paired(folder: Path, splits: Sequence[str] = tuple(PAIRS)) -> Path:
    for split in splits:
        write_pairs(folder, split, paired_rows(split))
    return folder


train_tiny = partial(tiny_language_model.train_tiny, task="translation", keys=keys)


@trained_once
def train_runs(folder: Path) -> None:
    """`qrnn` and `lstm`, trained on `pairs` beside them. To be left as they are: asked again, they are the same."""
    data = write_paired(folder / "pairs")
    train_tiny(folder / "qrnn", data)
    train_tiny(folder / "lstm", data, cell="lstm")
