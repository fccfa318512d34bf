"""Requests as users would send them: mostly translations and reviews, now and then a text to go on with."""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

REVIEWS = (
    "The music is fine, but its main weakness is the story, which I had heard too often. Not a bad film at all.",
    "Not exactly a dull story, my brother said; I would not call it a good one either, and the end is far too long.",
    "A wonderful cast, and yet I wanted to leave after an hour. I cannot recommend it to anyone who likes a plot.",
)
NUMBERS = (
    "siebenhundertvierzehntausenddreihundertacht",
    "der dritte März neunzehnhundertsiebenundachtzig",
    "vierzehn Uhr siebenunddreißig",
)

Ask = tuple[str, dict[str, Any]]

MAKERS: dict[str, Callable[[random.Random], Ask]] = {
    "translation": lambda draw: ("/translate", {"text": draw.choice(NUMBERS), "beam": 8}),
    "sentiment": lambda draw: ("/classify", {"texts": [draw.choice(REVIEWS)]}),
    "language-model": lambda draw: (
        "/generate",
        {"prompt": "The ", "length": 40, "temperature": 0.8, "seed": draw.randrange(2**32)},
    ),
}
WEIGHTS = {"translation": 5, "sentiment": 4, "language-model": 1}


def requests(tasks: Sequence[str], seed: int) -> Iterator[Ask]:
    """Without end, the same for the same seed."""
    draw = random.Random(seed)
    weights = [WEIGHTS[task] for task in tasks]
    while True:
        (task,) = draw.choices(tasks, weights)
        yield MAKERS[task](draw)
