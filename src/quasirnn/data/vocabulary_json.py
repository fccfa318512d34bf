"""The JSON form of a vocabulary, checked key by key before anything is made of it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

FORMAT = 1
# How text becomes tokens, by kind, the usual way first. Written down so that a later release can tell an older way
# from its own.
TOKENISERS = {"word": ("whitespace", "review"), "character": ("character",)}

KEYS = {"format": int, "kind": str, "tokeniser": str, "lowercase": bool, "specials": dict, "tokens": list}
TYPE_NAMES = {int: "a whole number", str: "a string", bool: "true or false", dict: "an object", list: "a list"}


def write(kind: str, tokeniser: str, tokens: Sequence[str], specials: Mapping[str, str], lowercase: bool) -> str:
    """The text of `vocabulary.json`: a token a line, so that two of them can be compared."""
    values = {
        "format": FORMAT,
        "kind": kind,
        "tokeniser": tokeniser,
        "lowercase": lowercase,
        "specials": dict(specials),
        "tokens": list(tokens),
    }
    return json.dumps(values, ensure_ascii=False, indent=1) + "\n"


def parse(text: str) -> dict[str, Any]:
    """The kind, tokeniser, tokens, specials and lowercase of a vocabulary in JSON, each of its type.

    Raises:
        ValueError: in one line that names the key.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"must be a JSON object, got {type(values).__name__}")
    if missing := [key for key in KEYS if key not in values]:
        raise ValueError(f'the key "{missing[0]}" is missing')
    if strange := [key for key in values if key not in KEYS]:
        raise ValueError(f"{strange[0]!r:.60} is not a key of a vocabulary; those are {', '.join(KEYS)}")
    for key, expected in KEYS.items():
        # Not isinstance: JSON's true would pass for an int.
        if type(values[key]) is not expected:
            raise ValueError(f'"{key}" must be {TYPE_NAMES[expected]}, got {values[key]!r:.60}')
    for key, strings in (("specials", values["specials"].values()), ("tokens", values["tokens"])):
        for place, string in enumerate(strings):
            if not isinstance(string, str) or not _is_writable(string):
                raise ValueError(f'"{key}" number {place} must be a string of whole characters, got {string!r:.60}')
    if values["format"] != FORMAT:
        raise ValueError(f'"format" must be {FORMAT}, got {values["format"]}. Was it written by a later release?')
    return {key: value for key, value in values.items() if key != "format"}


def _is_writable(string: str) -> bool:
    """Whether a string can be written as UTF-8: JSON can name half a surrogate pair, which cannot."""
    try:
        string.encode()
    except UnicodeEncodeError:
        return False
    return True
