"""Values from a file as the types that annotations name, and values in words for an error message."""

import math
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

# Whole numbers from here on are not exact in every reader of JSON.
LARGEST = 2**53


class Unfit(ValueError):
    """A value is not of its type; the message goes on from the name of the key: "must be ..., got ..."."""


def as_type(value: Any, hint: Any) -> Any:
    """A value read from JSON as the type that an annotation names: lists become tuples, 1 for a float 1.0.

    >>> as_type([6, 2], int | tuple[int, ...])
    (6, 2)
    >>> as_type("2", int | None)
    Traceback (most recent call last):
    quasirnn.models.typed_values.Unfit: must be an integer or none, got '2'
    """
    for choice in alternatives(hint):
        fits, converted = _fit(value, choice)
        if fits:
            return converted
    raise Unfit(f"must be {describe_type(hint)}, got {shown(value)}")


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def describe_type(hint: Any) -> str:
    """A type in words."""
    words = {int: "an integer", float: "a number", bool: "true or false", str: "text", type(None): "none"}
    return " or ".join(words.get(each) or _describe(each) for each in alternatives(hint))


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}" if len(get_args(hint)) > 1 else str(get_args(hint)[0])
    if _is_sequence(hint):
        plural = {int: "integers", float: "numbers", str: "texts"}
        return f"a list of {plural.get((*get_args(hint), Any)[0], 'values')}"
    return "an object" if get_origin(hint) in (dict, Mapping) else str(hint)


def _is_sequence(hint: Any) -> bool:
    return get_origin(hint) in (list, tuple, Sequence)


def _fit(value: Any, hint: Any) -> tuple[bool, Any]:
    """Whether a value is of one plain type, and the value as that type."""
    if hint is Any:
        return True, value
    if get_origin(hint) is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(hint)), value
    if _is_sequence(hint):
        if not isinstance(value, list | tuple):
            return False, None
        parts = [_fit(part, get_args(hint)[0]) for part in value]
        return all(fits for fits, _ in parts), tuple(part for _, part in parts)
    if get_origin(hint) in (dict, Mapping):
        return isinstance(value, Mapping), value
    if hint in (int, float):
        number = isinstance(value, int | hint) and not isinstance(value, bool)
        sound = number and (abs(value) < LARGEST if isinstance(value, int) else math.isfinite(value))
        return (True, hint(value)) if sound else (False, None)
    # JSON can hold half of a surrogate pair, UTF-8 cannot.
    return isinstance(value, hint) and not (hint is str and is_broken(value)), value


def is_broken(text: str) -> bool:
    """Whether a text has half of a surrogate pair, as the name of a file that is not UTF-8 has in Python."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def shown(value: Any, limit: int = 60) -> str:
    """A value from a file in one short line, whatever it is."""
    if isinstance(value, str):
        value = value[: limit + 1]
    elif isinstance(value, list | tuple) and len(value) > 8:
        return f"a list of {len(value)}"
    elif isinstance(value, Mapping):
        return "an object"
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) >= LARGEST:
        return "a huge number"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def one_line(error: BaseException) -> str:
    """What an error says, in one line without a full stop."""
    words = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return words if len(words) <= 200 else words[:197] + "..."
