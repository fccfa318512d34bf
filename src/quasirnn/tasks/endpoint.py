"""What a task offers over HTTP: the body of a request, and the function that answers it. Knows nothing of HTTP."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from quasirnn.errors import shown
from quasirnn.schema import Schema, Text, alternatives

NAME_CHARACTERS = 200  # of a model, a label

Name = Annotated[Text, Field(max_length=NAME_CHARACTERS)]
# Called again and again by whoever works on a request; raises where nobody waits for the answer any more.
Step = Callable[[], None]
Emit = Callable[[str], None]


class InvalidField(Exception):
    """A field of a request that cannot be used; the message follows the name of the field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field.partition("[")[0]


class Request(Schema):
    """A number is a number and no text, and an unknown field is a mistake."""

    model: Name | None = Field(None, description="The name of a loaded model; the first of the task if not given.")

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_fields(cls, values: Any) -> Any:
        # Before all else: a body can have thousands of fields, and each would become an error of its own.
        known = cls.model_fields
        unknown = next((name for name in values if name not in known), None) if isinstance(values, dict) else None
        if unknown is not None:
            name = unknown[:100].encode("utf-8", "replace").decode()
            sentence = f"{shown(name)}: no such field; there are {', '.join(known)}."
            raise PydanticCustomError("unknown_field", "{sentence}", {"sentence": sentence, "field": name})
        return (
            {name: cls._as_number(name, value) for name, value in values.items()}
            if isinstance(values, dict)
            else values
        )

    @classmethod
    def _as_number(cls, name: str, value: Any) -> Any:
        """JSON has one kind of number: for an integer, 9.0 is one."""
        whole = (
            isinstance(value, float) and value.is_integer() and int in alternatives(cls.model_fields[name].annotation)
        )
        return int(value) if whole else value


class Response(BaseModel):
    """An answer, as the API's documentation has it."""


def _nothing(pipeline: Any, request: Any) -> None:
    return None


@dataclass(frozen=True)
class Endpoint:
    """One path of the server.

    Args:
        path: as in "/classify".
        summary: for the API's documentation.
        request: the fields of the body.
        response: those of the answer besides "model", for the API's documentation; of a stream those of its end.
        answer: takes the pipeline, one or more requests and `step`, and returns the JSON of each answer, or an
            `InvalidField` in its place. Of a stream: takes one request, and a function to call with each piece of text
            as well, and returns the JSON of the end.
        check: raises `InvalidField` for a request that need not wait in the queue.
        together: requests with equal values may be answered together; None for one that is answered alone.
        size: how much of a batch a request takes up.
        tokens: how much work it is: time grows with it.
        is_short: whether it is done in a moment, so that longer ones can wait for it.
        stream: the answer is a stream of pieces of text.
        limits: what a request may ask for at most, by name, for GET /models.
        example: a body for the API's documentation, made of a text that the model can be tried with.
    """

    path: str
    summary: str
    request: type[Request]
    answer: Callable[..., Any]
    response: type[Response] = Response
    check: Callable[[Any, Any], None] = _nothing
    together: Callable[[Any], Hashable] = lambda request: None
    size: Callable[[Any], int] = lambda request: 1
    tokens: Callable[[Any], int] = lambda request: 1
    is_short: Callable[[Any], bool] = lambda request: False
    stream: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    example: Callable[[str], dict[str, Any]] | None = None
