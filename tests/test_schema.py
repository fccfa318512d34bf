"""Typed values from outside: what passes, and what is said of what does not."""

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from quasirnn.schema import InvalidValue, Mistakes, Schema, as_type, parse


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ([6, 2], int | tuple[int, ...], (6, 2)),
        ((1, 2), int | Sequence[int] | None, (1, 2)),
        (1, float, 1.0),
        (None, int | None, None),
        ("a", Literal["a", "b"], "a"),
        ({"a": 1}, dict[str, Any], {"a": 1}),
    ],
)
def test_a_value_becomes_its_type(value, hint, expected):
    converted = as_type(value, hint)
    assert converted == expected
    assert type(converted) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint", "told"),
    [
        ("2", int | None, "must be an integer or none, got '2'"),
        (True, int, "must be an integer, got True"),
        (True, float, "must be a number, got True"),
        (1.0, int, "must be an integer, got 1.0"),
        (2**60, int, "must be an integer, got a huge number"),
        (2**60, float, "must be a number, got a huge number"),
        (float("nan"), float, "must be a number, got nan"),
        ("c", Literal["a", "b"], "must be one of a, b, got 'c'"),
        ("\ud800", str, r"must be text, got '\ud800'"),
        ([1, "a"], tuple[int, ...], "must be a list of integers, got [1, 'a']"),
        (3, bool | None, "must be true or false or none, got 3"),
    ],
)
def test_a_value_of_another_type_is_named_in_words(value, hint, told):
    with pytest.raises(InvalidValue) as caught:
        as_type(value, hint)
    assert str(caught.value) == told


class Example(Schema):
    rate: float = 1.0
    steps: int


def test_all_mistakes_are_told_at_once_with_the_nearest_key():
    with pytest.raises(Mistakes) as caught:
        parse(Example, {"rtae": 2.0, "rate": "fast", "steps": 1.5})
    assert caught.value.lines == [
        "rtae: no such key; did you mean rate?",
        "rate: must be a number, got 'fast'",
        "steps: must be an integer, got 1.5",
    ]


def test_a_missing_key_is_told():
    with pytest.raises(Mistakes) as caught:
        parse(Example, {})
    assert caught.value.lines == ["steps: missing"]
