"""A request that is not served: a status, and one sentence that says why."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from quasirnn.errors import shown
from quasirnn.schema import BOUNDS
from quasirnn.tasks.endpoint import InvalidField


class ApiError(Exception):
    """What the client is told: `{"error": sentence}`, and the field at fault where there is one."""

    def __init__(self, status: int, sentence: str, field: str | None = None, headers: dict[str, str] | None = None):
        super().__init__(sentence)
        self.status, self.sentence, self.field, self.headers = status, sentence, field, headers

    @property
    def content(self) -> dict[str, Any]:
        return {"error": self.sentence} | ({} if self.field is None else {"field": self.field})


class ClientDisconnected(Exception):
    """There is nobody to answer any more."""


def deadline_passed() -> ApiError:
    return ApiError(504, "the deadline has passed, and the work was stopped; ask for less, or try again later.")


def invalid(error: InvalidField) -> ApiError:
    return ApiError(422, str(error), error.field)


_TYPES = {
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "list_type": "must be a list of texts",
}
_LENGTHS = {"too_short": ("at least", "min_length"), "too_long": ("at most", "max_length")}


def describe(errors: Sequence[ErrorDetails], fields: Sequence[str]) -> ApiError:
    """The first thing that is wrong with a body, as one sentence: an unknown field before all others."""
    error = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    place = [part for part in error["loc"] if part != "body"]
    kind, context = error["type"], error.get("ctx") or {}
    if kind == "json_invalid":
        return ApiError(400, f"the body is not JSON: {context.get('error', error['msg'])}.")
    if not place:
        return ApiError(422, "the body must be a JSON object.", "")
    name = str(place[0])[:100].encode("utf-8", "replace").decode()
    if kind == "extra_forbidden":
        return ApiError(422, f"{shown(name)}: no such field; there are {', '.join(fields)}.", name)
    field = name + "".join(f"[{part}]" for part in place[1:] if isinstance(part, int))
    return ApiError(422, f"{field}: {_sentence(kind, context, error)}", name)


def _sentence(kind: str, context: Mapping[str, Any], error: ErrorDetails) -> str:
    value = error["input"]
    if kind == "missing":
        return "is missing."
    if kind in BOUNDS:
        words = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
        key = BOUNDS[kind][1]
        bound = context[key]
        return f"{words[key]} {int(bound) if bound == int(bound) else bound:,}, got {shown(value)}."
    if (length := kind.removeprefix("string_")) in _LENGTHS:
        words, key = _LENGTHS[length]
        unit = "" if isinstance(value, list) else " character" if context[key] == 1 else " characters"
        return f"{words} {context[key]:,}{unit}, got {len(value):,}."
    if kind in ("string_unicode", "quasirnn"):
        return "holds half of a surrogate pair, which is no character."
    if kind == "literal_error":
        return f"must be one of {context['expected'].replace(chr(39), '')}, got {shown(value)}."
    return f"{_TYPES.get(kind, error['msg'])}, got {shown(value)}."
