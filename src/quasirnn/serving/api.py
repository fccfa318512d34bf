"""The limits of every request, and its errors: a status, and one sentence that says what is wrong.

The limits of an endpoint are its task's; `GET /models` lists all.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field
from pydantic_core import ErrorDetails

from quasirnn.errors import shown
from quasirnn.schema import BOUNDS
from quasirnn.tasks.pipeline import NAME_CHARACTERS, InvalidField

BODY_BYTES = 256 * 1024
# For the head and the body of a request to arrive, and for a response that is ready to be read.
RECEIVE_SECONDS = 10
# Open connections at a time; further ones are closed at once.
CONNECTIONS = 512
# The same for one address, so that others find room.
CLIENT_CONNECTIONS = 256
# The largest batch of requests, by the sizes that their endpoints give them.
BATCH = 64

LIMITS: dict[str, float] = {
    "body_bytes": BODY_BYTES,
    "receive_seconds": RECEIVE_SECONDS,
    "connections": CONNECTIONS,
    "client_connections": CLIENT_CONNECTIONS,
    "name_characters": NAME_CHARACTERS,
}


class ApiError(Exception):
    """An error response: `{"error": sentence}`, and the field that is wrong, if there is one."""

    def __init__(self, status: int, sentence: str, field: str | None = None, headers: dict[str, str] | None = None):
        super().__init__(sentence)
        self.status, self.sentence, self.field, self.headers = status, sentence, field, headers

    @property
    def content(self) -> dict[str, Any]:
        return {"error": self.sentence} | ({} if self.field is None else {"field": self.field})


class ErrorAnswer(BaseModel):
    """Every error, for the API's documentation."""

    error: str = Field(description="One sentence that says what is wrong.")
    field: str | None = Field(None, description="The field that is wrong, if there is one.")


# The error responses of an endpoint.
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": description}
    for status, description in {
        400: "The body is not valid JSON, or the request is not HTTP.",
        404: "No such model.",
        408: "The request took too long to arrive.",
        413: "The body is too large.",
        415: "The content type is not application/json.",
        421: "The Host header names another machine.",
        422: "A field is missing, unknown, of the wrong type, out of range, or blank.",
        500: "A bug in the server; its log has the traceback.",
        503: "The queue is full, or the server is shutting down.",
        504: "The deadline passed; the work was stopped.",
    }.items()
}


class ClientDisconnected(Exception):
    """The client has closed the connection."""


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


def describe(errors: Sequence[ErrorDetails]) -> ApiError:
    """The first validation error of a body, as one sentence."""
    error = errors[0]
    kind, context = error["type"], error.get("ctx") or {}
    if kind == "unknown_field":
        return ApiError(422, context["sentence"], context["field"])
    _, *place = error["loc"]  # "body", the field, and in a list the index
    if not place:
        return ApiError(422, "the body must be a JSON object.", "")
    name = str(place[0])
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
        word, key = _LENGTHS[length]
        unit = "" if isinstance(value, list) else " character" if context[key] == 1 else " characters"
        return f"{word} {context[key]:,}{unit}, got {len(value):,}."
    if "message" in context:
        return f"{context['message']}."
    if kind == "string_unicode":
        return "holds half of a surrogate pair, which is no character."
    if kind == "literal_error":
        return f"must be one of {context['expected'].replace(chr(39), '')}, got {shown(value)}."
    return f"{_TYPES.get(kind, error['msg'])}, got {shown(value)}."
