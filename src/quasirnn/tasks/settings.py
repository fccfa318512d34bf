"""A task's settings: typed values with a range and a comment each, changed by KEY=VALUE, all mistakes told at once.

A task derives its own dataclass from `TaskSettings` and writes its presets as values of it:

    @dataclass(frozen=True, kw_only=True)
    class LanguageModelSettings(TaskSettings):
        level: Literal["word", "character"] = setting("word", help="what a token is", group="data")

    PAPER = Preset("paper", LanguageModelSettings(epochs=72, ...), notes={"epochs": "paper 3.2"})
    settings = apply_overrides(PAPER.for_cell("qrnn"), ["zoneout=0.2", "kernel_size=6,2"])
"""

import dataclasses
import difflib
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

from quasirnn.errors import LARGEST_INTEGER as LARGEST
from quasirnn.errors import shown
from quasirnn.schema import InvalidValue as Unfit
from quasirnn.schema import alternatives, as_type, describe_type

CELLS = ("qrnn", "lstm")
GROUPS = ("data", "model", "optimisation", "run")
# What may differ from training.json when a run is resumed.
MAY_CHANGE = ("epochs", "max_steps", "max_minutes", "checkpoint_every")
NO_OPTIONS: Mapping[str, str] = {}
WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
# Digits with _ between them, a fraction, an exponent: what int and float both read, in ASCII.
NUMBER = re.compile(r"[+-]?(\d+(_\d+)*(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class SettingsError(ValueError):
    """Mistakes in settings, all of them: `mistakes` has one line each, the message is one line for all."""

    def __init__(self, mistakes: Sequence[str], where: str = "") -> None:
        self.mistakes = tuple(mistakes)
        message = self.mistakes[0]
        if len(self.mistakes) > 1:
            counted = (f"({n}) {mistake}" for n, mistake in enumerate(self.mistakes, 1))
            message = f"{len(self.mistakes)} mistakes: {' '.join(counted)}"
        super().__init__(f"{where}: {message}" if where else message)


def setting(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    group: str = "run",
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    cells: tuple[str, ...] = CELLS,
    option: str | None = None,
) -> Any:
    """A field of a settings dataclass.

    Args:
        default: none means that every preset has to say it.
        help: what the key is, for `--show`; a preset's note takes its place.
        group: the heading it is shown under, one of `GROUPS` or another.
        at_least, at_most, above, below: bounds; of each number, if there is one per layer.
        cells: the cells that have it; for another it is None, and giving it is an error. Its type must allow None.
        option: the command's option that sets it; as KEY=VALUE it is then refused.
    """
    bounds = {"at_least": at_least, "at_most": at_most, "above": above, "below": below}
    metadata = {"help": help, "group": group, "bounds": bounds, "cells": cells, "option": option}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """The KEYs that every task has. A value that breaks a rule cannot be made: SettingsError with all that is wrong."""

    cell: Literal["qrnn", "lstm"] = setting(
        "qrnn", help="qrnn, or an LSTM of equal size", group="model", option="--cell"
    )
    hidden_size: int = setting(help="units of each layer", group="model", at_least=1, at_most=65_536)
    num_layers: int = setting(help="recurrent layers", group="model", at_least=1, at_most=256)
    kernel_size: int | tuple[int, ...] | None = setting(
        2,
        help="width of the convolution, or one per layer: 6,2,2",
        group="model",
        at_least=1,
        at_most=1024,
        cells=("qrnn",),
    )
    pooling: Literal["f", "fo", "ifo"] | None = setting(
        "fo", help="gates of the recurrence", group="model", cells=("qrnn",)
    )
    zoneout: float | None = setting(
        0.0, help="share of channels that keep their state", group="model", at_least=0, below=1, cells=("qrnn",)
    )
    dropout: float = setting(0.0, help="share of inputs that are dropped", group="model", at_least=0, below=1)

    batch_size: int = setting(
        help="sequences in a step, over all processes", group="optimisation", at_least=1, at_most=2**20
    )
    learning_rate: float = setting(help="step size at the start", group="optimisation", above=0)
    clip: float | None = setting(None, help="largest norm of the gradient", group="optimisation", above=0)
    l2: float = setting(0.0, help="lambda in g += lambda w", group="optimisation", at_least=0)

    train: str | None = setting(None, help="stem of the training files", group="data")
    valid: str | None = setting(None, help="stem of the validation files", group="data")
    test: str | None = setting(None, help="stem of the test files", group="data")

    epochs: int = setting(help="passes over the training text", at_least=0)
    max_steps: int | None = setting(None, help="stop after so many steps", at_least=0)
    max_minutes: float | None = setting(None, help="stop after so much time, counted across resumes", at_least=0)
    patience: int | None = setting(None, help="stop after so many epochs without a better validation", at_least=1)
    checkpoint_every: int = setting(500, help="steps between checkpoints", at_least=1)
    precision: Literal["float32", "bfloat16", "float16"] = setting("float32", help="type of the matrix products")
    seed: int = setting(1, help="of weights, dropout and the order of the data", at_least=0, at_most=2**32 - 1)

    def __post_init__(self) -> None:
        mistakes = []
        for field, hint in _fields(type(self)):
            value = getattr(self, field.name)
            try:
                value = as_type(value, hint)
            except Unfit as unfit:
                mistakes.append(f"{field.name}: {unfit}")
                continue
            # A whole number for a float and a list for a tuple are taken as what they stand for.
            object.__setattr__(self, field.name, value)
        if not mistakes:
            for field, _ in _fields(type(self)):
                mistakes += _out_of_bounds(field, getattr(self, field.name))
            mistakes += self.problems()
        if mistakes:
            raise SettingsError(mistakes)

    @property
    def stems(self) -> dict[str, str | None]:
        """The parts of the data that the user has named: names in the folders of the training, and in no others."""
        return {"train": self.train, "valid": self.valid, "test": self.test}

    def problems(self) -> Iterator[str]:
        """What no bound of one key can say, "key: ..." each. A task adds its own after `yield from super().problems()`.

        Every value is of its type here, but may be out of its bounds.
        """
        for field, _ in _fields(type(self)):
            value, cells = getattr(self, field.name), field.metadata["cells"]
            if cells != CELLS and (value is None) == (self.cell in cells):
                what = "needs a value" if value is None else f"has none; it belongs to {' and '.join(cells)}"
                yield f"{field.name}: {self.cell} {what}"
        if isinstance(self.kernel_size, tuple) and len(self.kernel_size) != self.num_layers:
            yield (
                f"kernel_size: {len(self.kernel_size)} widths for num_layers={self.num_layers}; "
                "give one per layer, or one for all"
            )


def decay_problems(settings: Any, other: str) -> Iterator[str]:
    """Of a task with the optimizers adamw and `other`: weight_decay is the one's, l2 the other's."""
    if settings.weight_decay and settings.optimizer != "adamw":
        yield f"weight_decay: {settings.optimizer} has none; give l2, or optimizer=adamw"
    if settings.l2 and settings.optimizer == "adamw":
        yield f"l2: adamw has its own; give weight_decay, or optimizer={other}"


S = TypeVar("S", bound=TaskSettings)


@dataclass(frozen=True)
class Preset(Generic[S]):
    """Settings under a name: `qrnn` written out, and what another cell changes.

    by_cell: {"lstm": {"dropout": 0.2}}; values of keys that a cell does not have are dropped without being named.
    notes: where a value comes from, shown in place of the key's help: {"clip": "paper 3.2"}.
    """

    name: str
    qrnn: S
    by_cell: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        keys = {field.name for field, _ in _fields(type(self.qrnn))}
        named = set(self.notes).union(*self.by_cell.values())
        assert named <= keys, f"preset {self.name}: there is no {sorted(named - keys)}"

    def for_cell(self, cell: str) -> S:
        """The preset for "qrnn" or "lstm". What a cell does not have is None."""
        if cell not in CELLS:
            raise SettingsError(
                [f"--cell: must be one of {', '.join(CELLS)}, got {shown(cell)}{_nearest(cell, CELLS)}"]
            )
        changes: dict[str, Any] = {
            field.name: None for field, _ in _fields(type(self.qrnn)) if cell not in field.metadata["cells"]
        }
        return dataclasses.replace(self.qrnn, **(changes | {"cell": cell} | dict(self.by_cell.get(cell, {}))))


def apply_overrides(settings: S, overrides: Sequence[str], options: Mapping[str, str] = NO_OPTIONS) -> S:
    """Settings changed by ["key=value", ...], and by {key: value} of the options that the command has for some.

    Raises:
        SettingsError: all mistakes at once, each with the nearest key there is.
    """
    values, mistakes = _parse(settings, overrides, options)
    try:
        changed = dataclasses.replace(settings, **values)
    except SettingsError as error:
        mistakes += error.mistakes
    if mistakes:
        raise SettingsError(mistakes)
    return changed


def describe(settings: TaskSettings, preset: Preset[Any]) -> str:
    """What `--show` prints: every key as it could be given, by group, with `*` before what differs from the preset."""
    usual = preset.for_cell(settings.cell)
    rows: dict[str, list[tuple[str, str, str]]] = {group: [] for group in GROUPS}
    for field, _ in _fields(type(settings)):
        value = getattr(settings, field.name)
        if settings.cell not in field.metadata["cells"]:
            continue
        comment = preset.notes.get(field.name, field.metadata["help"])
        if (before := getattr(usual, field.name)) != value:
            comment = f"{preset.name}: {as_text(before)}; {field.metadata['help']}"
        option = field.metadata["option"]
        given = f"{option} {as_text(value)}" if option else f"{field.name}={as_text(value)}"
        rows.setdefault(field.metadata["group"], []).append(("*" if before != value else " ", given, comment))
    width = max(len(given) for group in rows.values() for _, given, _ in group)
    lines = [f"preset {preset.name}" + (", changed where marked *" if usual != settings else "")]
    for group, entries in rows.items():
        if entries:
            lines += ["", group, *(f"{mark} {given:<{width}}  # {comment}" for mark, given, comment in entries)]
    return "\n".join(lines)


def to_json(settings: TaskSettings) -> dict[str, Any]:
    """Every key with its value, fit for `json.dump`."""
    values = {field.name: getattr(settings, field.name) for field, _ in _fields(type(settings))}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def from_json(cls: type[S], data: Mapping[str, Any], where: str = "") -> S:
    """The settings that `to_json` gave; a key that is missing has its default.

    Raises:
        SettingsError: one for all that is wrong, beginning with `where`, the name of the file.
    """
    fields = {field.name: field for field, _ in _fields(cls)}
    unknown = [key for key in data if key not in fields]
    # Of a file that is something else altogether, the first few say enough.
    mistakes = [_no_such_key(key, fields) for key in unknown[:3]]
    if len(unknown) > 3:
        mistakes.append(f"{len(unknown) - 3} more keys that are not known")
    mistakes += [f"{key}: missing" for key, field in fields.items() if key not in data and _is_required(field)]
    if not mistakes:
        try:
            return cls(**data)
        except SettingsError as error:
            mistakes += error.mistakes
    raise SettingsError(mistakes, where)


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING


def contradictions(saved: TaskSettings, overrides: Sequence[str], options: Mapping[str, str] = NO_OPTIONS) -> list[str]:
    """The KEYs given on resume that contradict the saved run, one line each; those in `MAY_CHANGE` never do."""
    asked, _ = _parse(saved, overrides, options)
    return [
        f"{key}: the run was started with {as_text(getattr(saved, key))}, not {as_text(value)}"
        for key, value in asked.items()
        if key not in MAY_CHANGE and value != getattr(saved, key)
    ]


def as_text(value: Any) -> str:
    """A value as it is typed behind the = of KEY=VALUE."""
    if isinstance(value, tuple):
        return ",".join(map(as_text, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    text = str(value)
    return text if text.isprintable() else repr(text)


def _fields(cls: type[TaskSettings]) -> list[tuple[dataclasses.Field[Any], Any]]:
    """The fields of a settings class, each with its type."""
    hints = get_type_hints(cls)
    return [(field, hints[field.name]) for field in dataclasses.fields(cls)]


def _out_of_bounds(field: dataclasses.Field[Any], value: Any) -> Iterator[str]:
    words = {"at_least": "at least", "at_most": "at most", "above": "above", "below": "below"}
    holds = {"at_least": operator.ge, "at_most": operator.le, "above": operator.gt, "below": operator.lt}
    for number in value if isinstance(value, tuple) else (value,):
        for name, bound in field.metadata["bounds"].items():
            if bound is not None and number is not None and not holds[name](number, bound):
                yield f"{field.name}: must be {words[name]} {bound}, got {as_text(number)}"


def _parse(
    settings: TaskSettings, overrides: Sequence[str], options: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """What overrides and options say, by key, and their mistakes. Bounds are left to the settings themselves."""
    fields = {field.name: (field, hint) for field, hint in _fields(type(settings))}
    values: dict[str, Any] = {key: value for key, value in options.items() if key in fields}
    mistakes = [f"--{key}: this task has none" for key in options if key not in fields]
    seen = set()
    for override in overrides:
        key, equals, text = (part.strip() for part in override.partition("="))
        if not equals:
            mistakes.append(f"{shown(override)}: must be KEY=VALUE")
            continue
        if key not in fields:
            mistakes.append(_no_such_key(key, fields))
            continue
        if key in seen:
            mistakes.append(f"{key}: given twice")
        seen.add(key)
        field, hint = fields[key]
        if option := field.metadata["option"]:
            mistakes.append(f"{key}: not a KEY; give {option} {as_text(text)}")
            continue
        try:
            values[key] = _value(text, hint, may_be_none=field.metadata["cells"] == CELLS)
        except Unfit as unfit:
            mistakes.append(f"{key}: {unfit}")
    return values, mistakes


def _no_such_key(key: str, keys: Iterable[str]) -> str:
    name = key if key.isidentifier() and len(key) <= 60 else shown(key)
    return f"{name}: no such key" + (_nearest(key.replace("-", "_"), keys) or f"; there are {', '.join(keys)}")


def _nearest(text: str, choices: Iterable[str]) -> str:
    near = difflib.get_close_matches(text.lower()[:60], choices, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


def _value(text: str, hint: Any, may_be_none: bool) -> Any:
    """The text behind = as the type of its key."""
    kinds = [kind for kind in alternatives(hint) if may_be_none or kind is not NoneType]
    if NoneType in kinds and text.lower() == "none":
        return None
    choices: tuple[str, ...] = ()
    for kind in kinds:
        if kind is str:
            return text
        if kind is bool and text.lower() in WORDS:
            return WORDS[text.lower()]
        if get_origin(kind) is Literal:
            choices = get_args(kind)
            if text in choices:
                return text
        if kind in (int, float) and (number := _number(text, kind)) is not None:
            return number
        if get_origin(kind) is tuple:
            numbers = [_number(part, get_args(kind)[0]) for part in text.split(",")]
            if None not in numbers:
                return tuple(numbers)
    expected = " or ".join(describe_type(kind) for kind in kinds)
    raise Unfit(f"must be {expected}, got {shown(text)}{_nearest(text, choices)}")


def _number(text: str, kind: type) -> float | int | None:
    """A number as people write it, 1_000 or 1e4; None if it is none of its kind."""
    text = text.strip()
    if not NUMBER.fullmatch(text):
        return None
    number = float(text)
    if kind is float:
        return number if math.isfinite(number) else None
    # 1e4 and 5.0 are whole as well, 1e-4 is not. Below LARGEST, floats hold every whole number.
    return int(number) if abs(number) < LARGEST and number.is_integer() else None
