"""Numbers, dates and times of day in German and English words: a generated corpus, no text is bundled.

    dreihundertzwölf -> three hundred and twelve
    der dritte März neunzehnhundertsiebenundachtzig -> March third, nineteen eighty-seven
    vierzehn Uhr siebenunddreißig -> two thirty-seven in the afternoon

Words cannot be replaced one by one. German has units before tens and all of a number in one word, the day before the
month, and counts the hours to 24; 2015 is "two thousand and fifteen" as a number, but "twenty fifteen" as a year. The
words are those of num2words, the names of months and parts of the day those of babel.
"""

import datetime
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from quasirnn.errors import MissingPackageError

FIRST_DAY, LAST_DAY = datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)
DAYS = (LAST_DAY - FIRST_DAY).days + 1
MINUTES = 24 * 60


@dataclass(frozen=True)
class Kind:
    """Things that are written out, and how many of them each part has."""

    write: Callable[[int], tuple[str, str]]
    things: range
    train: int
    valid: int
    test: int


def load(part: str, seed: int = 1) -> list[tuple[str, str]]:
    """The pairs of "train", "valid" or "test", German and English, of all kinds in random order.

    No number, date or time is in two parts. The same for a seed on every machine and in every release of Python.

    >>> load("test")[2]
    ('der vierte Januar neunzehnhundertzweiundzwanzig', 'January fourth, nineteen twenty-two')

    Raises:
        MissingPackageError: num2words or babel is not installed.
    """
    return list(_load(part, seed))


def number(value: int) -> tuple[str, str]:
    """A whole number from 0 to 999,999.

    >>> number(743_021)
    ('siebenhundertdreiundvierzigtausendeinundzwanzig', 'seven hundred and forty-three thousand and twenty-one')
    """
    thousands, rest = divmod(value, 1000)
    german, english = _words("de", rest), _words("en", rest)
    if not thousands:
        return german, english
    # Not all of it by num2words, which takes long for many numbers, and has "einstausend" in 101,000.
    german = _before_noun(_words("de", thousands)) + "tausend" + (german if rest else "")
    joint = (", " if rest >= 100 else " and ") + english if rest else ""
    return german, _words("en", thousands) + " thousand" + joint


def date(day: int) -> tuple[str, str]:
    """A day by its number, the first of January 1900 being 0.

    >>> date((datetime.date(2015, 3, 21) - FIRST_DAY).days)
    ('der einundzwanzigste März zweitausendfünfzehn', 'March twenty-first, twenty fifteen')
    """
    when = FIRST_DAY + datetime.timedelta(day)
    german = f"der {_words('de', when.day, 'ordinal')} {_month('de', when.month)} {_words('de', when.year, 'year')}"
    english = f"{_month('en', when.month)} {_words('en', when.day, 'ordinal')}, {_words('en', when.year, 'year')}"
    return german, english


def time(minute: int) -> tuple[str, str]:
    """A time of day by its number of minutes after midnight.

    >>> time(13 * 60 + 5), time(0)
    (('dreizehn Uhr fünf', 'one oh five in the afternoon'), ('null Uhr', "twelve o'clock in the morning"))
    """
    hour, minute = divmod(minute, 60)
    german = _before_noun(_words("de", hour)) + " Uhr" + (" " + _words("de", minute) if minute else "")
    past = _words("en", minute) if minute >= 10 else f"oh {_words('en', minute)}" if minute else "o'clock"
    return german, f"{_words('en', (hour - 1) % 12 + 1)} {past} {_part_of_day(hour)}"


KINDS = (
    # Numbers below 100 are all in train: they are the words that the others are made of.
    Kind(number, range(100), train=100, valid=0, test=0),
    Kind(number, range(100, 1_000), train=800, valid=30, test=70),
    Kind(number, range(1_000, 10_000), train=1_600, valid=70, test=230),
    Kind(number, range(10_000, 100_000), train=2_000, valid=100, test=300),
    Kind(number, range(100_000, 1_000_000), train=2_500, valid=100, test=300),
    Kind(date, range(DAYS), train=3_900, valid=200, test=900),
    Kind(time, range(MINUTES), train=1_100, valid=100, test=200),
)
SIZES = {part: sum(getattr(kind, part) for kind in KINDS) for part in ("train", "valid", "test")}


@cache
def _load(part: str, seed: int) -> tuple[tuple[str, str], ...]:
    if part not in SIZES:
        raise ValueError(f"part must be one of {', '.join(SIZES)}, got {part!r}")
    pairs = [kind.write(thing) for kind in KINDS for thing in _chosen(kind, seed)[part]]
    return tuple(pairs[place] for place in _shuffled(len(pairs), f"{seed} {part}"))


@cache
def _chosen(kind: Kind, seed: int) -> dict[str, list[int]]:
    """Which of its kind are in each part: all are shuffled, and each part has the next so many of them."""
    order = _shuffled(len(kind.things), f"{seed} {kind.write.__name__} {kind.things.start}")
    # Train last, so that another size of it leaves the others as they are.
    borders = [0, kind.valid, kind.valid + kind.test, kind.valid + kind.test + kind.train]
    parts = zip(("valid", "test", "train"), pairwise(borders), strict=True)
    return {part: [kind.things[place] for place in order[first:last]] for part, (first, last) in parts}


def _shuffled(number: int, seed: str) -> np.ndarray:
    # Raw numbers of a named generator: their order is the same in every release, as a shuffle's might not be.
    draw = np.random.PCG64(int.from_bytes(hashlib.sha256(seed.encode()).digest(), "big")).random_raw
    return np.argsort(draw(number), kind="stable")


def _before_noun(german: str) -> str:
    """A number before a noun: "ein Uhr", "einhunderteintausend"."""
    return german.removesuffix("s") if german.endswith("eins") else german


@cache
def _words(language: str, value: int, form: str = "cardinal") -> str:
    num2words, _ = _packages()
    return num2words.num2words(value, lang=language, to=form)


@cache
def _month(language: str, month: int) -> str:
    _, dates = _packages()
    return dates.get_month_names("wide", locale=language)[month]


@cache
def _part_of_day(hour: int) -> str:
    _, dates = _packages()
    return dates.format_time(datetime.time(hour, 30), "B", locale="en")


def _packages() -> tuple[Any, Any]:
    try:
        import num2words
        from babel import dates
    except ImportError as error:
        message = "the built-in translations need num2words and babel: pip install 'quasirnn[demo]'"
        raise MissingPackageError(message) from error
    return num2words, dates
