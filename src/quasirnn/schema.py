"""Typed values from outside (JSON files, KEY=VALUE, HTTP bodies), on pydantic.

pydantic checks; this file says what is wrong in our words, all mistakes at once: "key: must be an integer, got '2'".
"""

import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from quasirnn.errors import LARGEST_INTEGER, did_you_mean, shown

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)

M = TypeVar("M", bound="Schema")


class Schema(BaseModel):
    """A frozen record that takes values of their own type only: no number from a string, no unknown key."""

    model_config = STRICT


class InvalidValue(ValueError):
    """A value is not of its type. The message continues the name of the key: "must be ..., got ..."."""


def as_type(value: Any, hint: Any) -> Any:
    """A value from JSON as the type that an annotation names: a list becomes a tuple, 1 for a float 1.0.

    >>> as_type([6, 2], int | tuple[int, ...])
    (6, 2)
    >>> as_type("2", int | None)
    Traceback (most recent call last):
    quasirnn.schema.InvalidValue: must be an integer or none, got '2'
    """
    try:
        converted = TypeAdapter(_lenient(hint), config=ConfigDict(strict=True, allow_inf_nan=False)).validate_python(
            value
        )
    except ValidationError:
        raise InvalidValue(f"must be {describe_type(hint)}, got {shown(value)}") from None
    return converted


def parse(cls: type[M], values: Mapping[str, Any]) -> M:
    """A record from a JSON object.

    Raises:
        Mistakes: all that is wrong, one line each.
    """
    try:
        return cls.model_validate(dict(values))
    except ValidationError as error:
        raise Mistakes(mistakes(error, cls)) from None


class Mistakes(ValueError):
    """Everything that is wrong with a record, one line each."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("; ".join(lines))
        self.lines = list(lines)


def mistakes(error: ValidationError, cls: type[BaseModel]) -> list[str]:
    """The errors of a record in words, one line for each key, unknown keys first and at most three of them."""
    hints = {name: hint for name, hint in get_type_hints(cls, include_extras=True).items() if name in cls.model_fields}
    unknown: list[str] = []
    lines: dict[str, str] = {}
    # Every member of a union has its own error: a broken bound says most, otherwise the whole type is described.
    for each in sorted(error.errors(include_url=False), key=lambda each: each["type"] not in BOUNDS):
        key = str(each["loc"][0]) if each["loc"] else ""
        if each["type"] == "extra_forbidden":
            unknown.append(key)
        elif not key:
            return list(each["ctx"]["lines"]) if "lines" in each.get("ctx", {}) else [each["msg"]]
        else:
            lines.setdefault(key, f"{key}: {describe_error(each, hints.get(key))}")
    told = [no_such_key(key, cls.model_fields) for key in unknown[:3]]
    if len(unknown) > 3:
        told.append(f"{len(unknown) - 3} more unknown keys")
    # In the order of the record; a field that has another name in the file comes last.
    return told + [lines[key] for key in [*cls.model_fields, *(lines.keys() - cls.model_fields.keys())] if key in lines]


# pydantic's names of broken bounds: the words for each, and where the bound stands.
BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}


def describe_error(error: ErrorDetails, hint: Any = None) -> str:
    """What is wrong with one value, to follow the name of its key."""
    kind, value = error["type"], error["input"]
    if kind == "missing":
        return "missing"
    if kind in BOUNDS:
        words, name = BOUNDS[kind]
        return f"must be {words} {_number(error['ctx'][name])}, got {shown(value)}"
    if isinstance(error.get("ctx"), dict) and "message" in error["ctx"]:
        return str(error["ctx"]["message"])
    return f"must be {describe_type(hint)}, got {shown(value)}" if hint is not None else error["msg"]


def _number(bound: float) -> str:
    return f"{int(bound)}" if bound == int(bound) else f"{bound}"


def problem(message: str) -> PydanticCustomError:
    """An error to be raised by a validator: `message` continues the name of the key."""
    return PydanticCustomError("quasirnn", "{message}", {"message": message})


def problems(lines: Sequence[str]) -> PydanticCustomError:
    """An error to be raised by a validator of a whole record: complete lines, "key: ..." each."""
    return PydanticCustomError("quasirnn", "{text}", {"lines": list(lines), "text": "; ".join(lines)})


def no_such_key(key: str, keys: Any) -> str:
    """A line on an unknown key, with the nearest one there is."""
    name = key if key.isidentifier() and len(key) <= 60 else shown(key)
    return f"{name}: no such key" + (did_you_mean(key.replace("-", "_"), keys) or f"; the keys are {', '.join(keys)}")


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type."""
    hint = _bare(hint)
    return tuple(map(_bare, get_args(hint))) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def describe_type(hint: Any) -> str:
    """A type in words."""
    words = {int: "an integer", float: "a number", bool: "true or false", str: "text", type(None): "none"}
    return " or ".join(words.get(each) or _describe(each) for each in alternatives(hint))


def _describe(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, get_args(hint)))}" if len(get_args(hint)) > 1 else str(get_args(hint)[0])
    if _is_sequence(hint):
        plural = {int: "integers", float: "numbers", str: "texts"}
        return f"a list of {plural.get(_bare((*get_args(hint), Any)[0]), 'values')}"
    return "an object" if get_origin(hint) in (dict, Mapping) or hint is dict else str(hint)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _is_sequence(hint: Any) -> bool:
    return get_origin(hint) in (list, tuple, Sequence)


def has_lone_surrogate(text: str) -> bool:
    """Whether a string cannot be written as UTF-8. JSON escapes and non-UTF-8 file names can produce such strings."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _whole(text: str) -> str:
    if has_lone_surrogate(text):
        raise problem("holds half of a surrogate pair, which is no character")
    return text


def _exact(number: int) -> int:
    if abs(number) >= LARGEST_INTEGER:
        raise problem("too large")
    return number


def _no_bool(value: Any) -> Any:
    # An integer is a valid float even in strict mode; true and false are not.
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) >= LARGEST_INTEGER):
        raise problem("no number")
    return value


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


Text = Annotated[str, AfterValidator(_whole)]
Integer = Annotated[int, AfterValidator(_exact)]
Number = Annotated[float, BeforeValidator(_no_bool)]


def _lenient(hint: Any) -> Any:
    """The annotation as pydantic should check it: text without lone surrogates, exact integers, tuples from lists."""
    if get_origin(hint) in (Union, types.UnionType):
        return Union[tuple(map(_lenient, get_args(hint)))]  # noqa: UP007
    if _is_sequence(hint):
        item = _lenient((*get_args(hint), Any)[0])
        return Annotated[tuple[item, ...], BeforeValidator(_as_tuple)]  # type: ignore[valid-type]
    return {str: Text, int: Integer, float: Number}.get(hint, hint)
