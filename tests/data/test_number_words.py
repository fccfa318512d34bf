import datetime
import sys

import pytest

from quasirnn.data import number_words
from quasirnn.data.number_words import DAYS, FIRST_DAY, KINDS, MINUTES, SIZES, date, load, number, time

num2words = pytest.importorskip("num2words", reason="the built-in translations are made with it").num2words
pytest.importorskip("babel", reason="the built-in translations are made with it")


@pytest.mark.parametrize(
    ("value", "german", "english"),
    [
        (0, "null", "zero"),
        (1, "eins", "one"),
        (21, "einundzwanzig", "twenty-one"),
        (312, "dreihundertzwölf", "three hundred and twelve"),
        (1_000, "eintausend", "one thousand"),
        (1_001, "eintausendeins", "one thousand and one"),
        (2_015, "zweitausendfünfzehn", "two thousand and fifteen"),
        (101_101, "einhunderteintausendeinhunderteins", "one hundred and one thousand, one hundred and one"),
        (
            999_999,
            "neunhundertneunundneunzigtausendneunhundertneunundneunzig",
            "nine hundred and ninety-nine thousand, nine hundred and ninety-nine",
        ),
    ],
)
def test_numbers(value, german, english):
    assert number(value) == (german, english)


def test_numbers_are_those_of_num2words():
    """But for the "einstausend" that it has for 101,000."""
    for value in [*range(0, 1_000_000, 7_919), *range(990, 1_111), 100_000, 999_000, 500_100]:
        german = num2words(value, lang="de").replace("einstausend", "eintausend")
        assert number(value) == (german, num2words(value, lang="en"))


@pytest.mark.parametrize(
    ("day", "german", "english"),
    [
        ((1900, 1, 1), "der erste Januar neunzehnhundert", "January first, nineteen hundred"),
        (
            (1987, 3, 3),
            "der dritte März neunzehnhundertsiebenundachtzig",
            "March third, nineteen eighty-seven",
        ),
        ((2000, 2, 29), "der neunundzwanzigste Februar zweitausend", "February twenty-ninth, two thousand"),
        (
            (2099, 12, 31),
            "der einunddreißigste Dezember zweitausendneunundneunzig",
            "December thirty-first, twenty ninety-nine",
        ),
    ],
)
def test_dates(day, german, english):
    assert date((datetime.date(*day) - FIRST_DAY).days) == (german, english)


def test_the_last_day():
    assert date(DAYS - 1)[1] == "December thirty-first, twenty ninety-nine"


@pytest.mark.parametrize(
    ("hour", "minute", "german", "english"),
    [
        (0, 5, "null Uhr fünf", "twelve oh five in the morning"),
        (1, 0, "ein Uhr", "one o'clock in the morning"),
        (12, 30, "zwölf Uhr dreißig", "twelve thirty in the afternoon"),
        (14, 37, "vierzehn Uhr siebenunddreißig", "two thirty-seven in the afternoon"),
        (21, 1, "einundzwanzig Uhr eins", "nine oh one at night"),
    ],
)
def test_times(hour, minute, german, english):
    assert time(60 * hour + minute) == (german, english)


def test_every_thing_has_words_of_its_own():
    """So that no two of them can be confused, and none of one part is in another under the same name."""
    for write, things in ((date, range(DAYS)), (time, range(MINUTES)), (number, range(0, 1_000_000, 37))):
        pairs = [write(thing) for thing in things]
        assert len({german for german, _ in pairs}) == len({english for _, english in pairs}) == len(things)


def test_sizes_and_parts_that_share_nothing():
    parts = {part: load(part) for part in SIZES}
    assert (
        {part: len(pairs) for part, pairs in parts.items()} == SIZES == {"train": 12_000, "valid": 600, "test": 2_000}
    )
    every = [pair for pairs in parts.values() for pair in pairs]
    assert len({german for german, _ in every}) == len({english for _, english in every}) == len(every)
    for pairs in parts.values():
        kinds = ["der " in german or "Uhr" in german for german, _ in pairs]
        assert 0.3 < sum(kinds) / len(kinds) < 0.6
        # In any order.
        assert kinds != sorted(kinds)


def test_every_character_and_every_word_is_in_train():
    def words(part):
        return {
            word for pair in load(part) for side in pair for word in side.replace("-", " ").replace(",", " ").split()
        }

    english_or_short = {word for word in words("test") | words("valid") if len(word) < 9}
    assert english_or_short <= words("train")


def test_the_choice_is_the_same_everywhere():
    """Worked out once: neither the machine nor a release of Python or numpy may move it."""
    chosen = [number_words._chosen(kind, 1)["test"][:3] for kind in KINDS]
    assert chosen == [
        [],
        [782, 360, 306],
        [1994, 7554, 2286],
        [62524, 45537, 99151],
        [200907, 852399, 290816],
        [29026, 26418, 64855],
        [520, 32, 1055],
    ]
    assert [english for _, english in load("valid")[:3]] == [
        "April seventeenth, twenty seventy-one",
        "May tenth, twenty seventeen",
        "December twenty-sixth, twenty sixty",
    ]


def test_the_seed_decides():
    assert load("test", seed=2) != load("test", seed=1)
    assert load("test", seed=1) == load("test")


def test_an_answer_is_the_caller_s_own():
    load("valid").clear()
    assert len(load("valid")) == SIZES["valid"]


def test_no_such_part():
    with pytest.raises(ValueError, match="part must be one of train, valid, test, got 'dev'"):
        load("dev")


@pytest.mark.parametrize("missing", ["num2words", "babel"])
def test_a_package_that_is_missing(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    number_words._words.cache_clear()
    with pytest.raises(ImportError, match=r"need num2words and babel: pip install 'quasirnn\[demo\]'"):
        number(7)
