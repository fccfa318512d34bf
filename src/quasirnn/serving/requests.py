"""What each path is asked with: fields, their types and limits, and in words what does not fit."""

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from quasirnn.errors import has_lone_surrogate as is_broken
from quasirnn.errors import shown
from quasirnn.serving import limits
from quasirnn.serving.refusals import Refused, unfit


def _whole_characters(text: str) -> str:
    if is_broken(text):
        raise ValueError("surrogate")
    return text


Text = Annotated[str, AfterValidator(_whole_characters)]
Name = Annotated[Text, Field(max_length=limits.NAME_CHARACTERS)]


class Asked(BaseModel):
    """A number is a number and no text, and an unknown field is a mistake."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: Name | None = Field(None, description="The name of a loaded model; the first of the task if not given.")


class Classify(Asked):
    texts: list[Annotated[Text, Field(min_length=1, max_length=limits.CLASSIFY_CHARACTERS)]] = Field(
        min_length=1, max_length=limits.CLASSIFY_TEXTS
    )


class ClassifyStream(Asked):
    text: Text = Field(max_length=limits.STREAM_CHARACTERS, description="What follows; it ends where a word ends.")
    state: Text | None = Field(
        None, max_length=limits.STATE_CHARACTERS, description="As the answer before gave it; null at the beginning."
    )


class States(Asked):
    text: Text = Field(min_length=1, max_length=limits.STATES_CHARACTERS)
    layer: int | None = Field(None, ge=1, description="Counted from 1; null is the last.")
    what: Literal["c", "h", "z", "f", "o", "i"] = Field("c", description="Cells, outputs, or a gate.")
    label: Name | None = Field(None, description="Whose probability to follow; null is the last class.")


class Generate(Asked):
    prompt: Text = Field("", max_length=limits.PROMPT_CHARACTERS)
    length: int = Field(100, ge=1, le=limits.LENGTH, description="Tokens to draw.")
    temperature: float = Field(1.0, ge=0, le=limits.TEMPERATURE, description="0 takes the most likely token.")
    top_k: int | None = Field(None, ge=1, description="At most the size of the vocabulary.")
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, le=limits.SEED)


class Translate(Asked):
    text: Text = Field(min_length=1, max_length=limits.TRANSLATE_CHARACTERS)
    beam: int = Field(8, ge=1, le=limits.BEAM)
    n_best: int = Field(1, ge=1, le=limits.BEAM, description="At most as many as beam.")
    alpha: float = Field(0.6, ge=0, le=limits.ALPHA)
    attention: bool = Field(False, description=f"For a text of at most {limits.ATTENTION_CHARACTERS} characters.")


A = TypeVar("A", bound=Asked)


def parse(body: bytes, content_type: str, kind: type[A]) -> A:
    """The body of a request as what it asks for.

    Raises:
        Refused: 415, 400 or 422.
    """
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, f"Content-Type: must be application/json, got {shown(content_type)}.")
    values = _json(body)
    if not isinstance(values, dict):
        raise Refused(422, "the body must be a JSON object.", "")
    # Before all else: a body can have thousands of fields, and each would become an error of its own.
    if (strange := next((name for name in values if name not in kind.model_fields), None)) is not None:
        name = strange[:100].encode("utf-8", "replace").decode()
        raise Refused(422, f"{shown(name)}: no such field; there are {', '.join(kind.model_fields)}.", name)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise _worded(error.errors(include_url=False)[0]) from None


def _json(body: bytes) -> Any:
    def no_constant(name: str) -> None:
        raise Refused(400, f"the body is not JSON: {name} is no number there.")

    try:
        return json.loads(body.decode("utf-8"), parse_constant=no_constant)
    except UnicodeDecodeError as error:
        raise Refused(400, f"the body is not UTF-8: byte {error.start + 1} cannot be read.") from None
    except json.JSONDecodeError as error:
        raise Refused(400, f"the body is not JSON: {error}.") from None
    except RecursionError:
        raise Refused(400, "the body cannot be read: it is nested too deeply.") from None
    except ValueError:
        raise Refused(400, "the body cannot be read: a number in it has too many digits.") from None


_TYPES = {
    "type": "must be a text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "list_type": "must be a list of texts",
}
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
_LENGTHS = {
    "too_short": ("at least", "min_length"),
    "too_long": ("at most", "max_length"),
}


def _worded(error: ErrorDetails) -> Refused:
    """The first thing that is wrong, as one sentence."""
    name, *place = error["loc"]
    field = str(name) + "".join(f"[{number}]" for number in place if isinstance(number, int))
    what, context, value = error["type"], error.get("ctx", {}), error["input"]
    if what == "missing":
        return unfit(field, "is missing.")
    if what in _BOUNDS:
        words, key = _BOUNDS[what]
        bound = context[key]
        return unfit(field, f"{words} {int(bound) if bound == int(bound) else bound:,}, got {shown(value)}.")
    if (what := what.removeprefix("string_")) in _LENGTHS:
        words, key = _LENGTHS[what]
        unit = "" if isinstance(value, list) else " character" if context[key] == 1 else " characters"
        return unfit(field, f"{words} {context[key]:,}{unit}, got {len(value):,}.")
    if what in ("unicode", "value_error"):
        return unfit(field, "holds half of a surrogate pair, which is no character.")
    if what == "literal_error":
        return unfit(field, f"must be one of {context['expected'].replace(chr(39), '')}, got {shown(value)}.")
    return unfit(field, f"{_TYPES.get(what, error['msg'])}, got {shown(value)}.")
