"""A task's settings: typed values with a range and a comment, changed by KEY=VALUE; mistakes are reported together.

A task derives its own class from `TaskSettings` and writes its presets as values of it:

    class LanguageModelSettings(TaskSettings):
        level: Literal["word", "character"] = setting("word", help="what a token is", group="data")

    PAPER = Preset("paper", LanguageModelSettings.of("hidden_size=640 epochs=72 ..."), notes={"epochs": "paper 3.2"})
    settings = apply_overrides(PAPER.for_cell("qrnn"), ["zoneout=0.2", "kernel_size=6,2"])
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from quasirnn.errors import LARGEST_INTEGER, SettingsError, did_you_mean, printable, shown
from quasirnn.schema import Schema, Text, alternatives, describe_type, mistakes, no_such_key, problems

CELLS = ("qrnn", "lstm")
GROUPS = ("data", "model", "optimisation", "run")
# What may differ from training.json when a run is resumed.
MAY_CHANGE = ("epochs", "max_steps", "max_minutes", "checkpoint_every", "precision")
NO_OPTIONS: Mapping[str, str] = {}
WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
# Digits with _ between them, a fraction, an exponent: what int and float both read, in ASCII.
NUMBER = re.compile(r"[+-]?(\d+(_\d+)*(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def setting(
    default: Any = ...,
    *,
    help: str,
    group: str = "run",
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    cells: tuple[str, ...] = CELLS,
    option: str | None = None,
    kept: Literal["fixed", "default"] | None = None,
) -> Any:
    """A field of a settings class.

    Args:
        default: without one, every preset must have a value.
        help: what the key is, for `--show`; a preset's note takes its place.
        group: the heading it is shown under, one of `GROUPS` or another.
        at_least, at_most, above, below: bounds.
        cells: the cells that have it; for another it is None, and giving it is an error. Its type must allow None.
        option: the command's option that sets it; KEY=VALUE is then an error.
        kept: a run that starts from a trained model (--from) has that model's value. "fixed": giving another is an
            error, as for sizes; "default": another may be given.
    """
    return Field(
        default,
        description=help,
        ge=at_least,
        le=at_most,
        gt=above,
        lt=below,
        json_schema_extra={"group": group, "cells": list(cells), "option": option, "kept": kept},
    )


def size_setting(default: Any = ..., *, help: str) -> Any:
    """A field for a size of the model, which a trained one cannot change."""
    return setting(default, help=help, group="model", at_least=1, at_most=65_536, kept="fixed")


Width = Annotated[int, Field(ge=1, le=1024)]
Widths = Annotated[tuple[Width, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]


class TaskSettings(Schema):
    """The KEYs that every task has. Invalid values cannot be constructed."""

    # Former names of keys, and of their values, which are still read.
    aliases: ClassVar[Mapping[str, str]] = {}
    value_aliases: ClassVar[Mapping[str, Mapping[Any, Any]]] = {}

    cell: Literal["qrnn", "lstm"] = setting(
        "qrnn", help="qrnn, or an LSTM with as many units", group="model", option="--cell", kept="fixed"
    )
    hidden_size: int = size_setting(help="units per layer")
    num_layers: int = setting(help="number of recurrent layers", group="model", at_least=1, at_most=256, kept="fixed")
    kernel_size: Width | Widths | None = setting(
        2, help="width of the convolution, or one per layer: 6,2,2", group="model", cells=("qrnn",), kept="fixed"
    )
    pooling: Literal["f", "fo", "ifo"] | None = setting(
        "fo", help="gates of the recurrence", group="model", cells=("qrnn",), kept="fixed"
    )
    # Kept, as its expectation is part of what a trained model computes.
    zoneout: float | None = setting(
        0.0,
        help="probability that a channel keeps its state",
        group="model",
        at_least=0,
        below=1,
        cells=("qrnn",),
        kept="default",
    )
    dropout: float = setting(0.0, help="dropout probability", group="model", at_least=0, below=1)
    match: Literal["units", "parameters"] = setting(
        "units", help="the LSTM has as many units as the QRNN, or as many parameters", group="model"
    )

    batch_size: int = setting(
        help="sequences per step, over all processes", group="optimisation", at_least=1, at_most=2**20
    )
    learning_rate: float = setting(help="initial learning rate", group="optimisation", above=0)
    optimizer: Literal["sgd", "rmsprop", "adam", "adamw"] = setting(
        "adamw", help="sgd has no momentum", group="optimisation"
    )
    weight_decay: float = setting(
        0.0, help="decoupled weight decay of matrices; adamw only", group="optimisation", at_least=0
    )
    schedule: Literal["constant", "hold-decay", "cosine"] = setting(
        "cosine", help="learning rate schedule", group="optimisation"
    )
    hold_epochs: int = setting(
        6, help="hold-decay: epochs at the initial learning rate", group="optimisation", at_least=0
    )
    decay: float = setting(
        0.95, help="hold-decay: factor for each later epoch", group="optimisation", above=0, at_most=1
    )
    warm_up: int | float = setting(
        0,
        help="cosine: warm-up steps; below 1, a fraction of all steps",
        group="optimisation",
        at_least=0,
    )
    clip: float | None = setting(None, help="maximum norm of the gradient", group="optimisation", above=0)
    l2: float = setting(0.0, help="lambda in g += lambda w", group="optimisation", at_least=0)
    average: float = setting(
        0.0,
        help="average the weights over this fraction of the steps, at the end",
        group="optimisation",
        at_least=0,
        at_most=1,
    )

    init_from: Text | None = setting(
        None, help="a trained run that provides the initial weights and the vocabulary", group="model", option="--from"
    )
    train: Text | None = setting(None, help="stem of the training files", group="data")
    valid: Text | None = setting(None, help="stem of the validation files", group="data")
    test: Text | None = setting(None, help="stem of the test files", group="data")
    lowercase: bool = setting(False, help="convert the text to lower case", group="data", kept="fixed")
    max_vocabulary: int | None = setting(
        None, help="maximum vocabulary size; the most frequent tokens are kept", group="data", at_least=3
    )

    epochs: int = setting(help="passes over the training text", at_least=0)
    max_steps: int | None = setting(None, help="stop after this many steps", at_least=0)
    max_minutes: float | None = setting(None, help="stop after this many minutes, counted across resumes", at_least=0)
    patience: int | None = setting(
        None, help="stop after this many epochs without improvement on validation", at_least=1
    )
    checkpoint_every: int = setting(500, help="steps between checkpoints", at_least=1)
    precision: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "float32", help="type of the matrix products; auto: bfloat16 if the device supports it"
    )
    seed: int = setting(1, help="seed for weights, dropout and the order of the data", at_least=0, at_most=2**32 - 1)
    split_seed: int | None = setting(
        None, help="seed for holding out splits; none: seed", group="data", at_least=0, at_most=2**32 - 1
    )

    @model_validator(mode="after")
    def _check(self) -> TaskSettings:
        if lines := list(self.problems()):
            raise problems(lines)
        return self

    @classmethod
    def of(cls, *keys: str) -> Self:
        """The settings that KEY=VALUE, as typed, gives; each argument holds some of them, with spaces between."""
        values, lines = _parse(cls, " ".join(keys).split(), NO_OPTIONS)
        assert not lines, lines
        return cls(**values)

    @classmethod
    def keys_without(cls, cell: str) -> set[str]:
        """The keys that a cell does not have."""
        return {name for name, info in cls.model_fields.items() if cell not in _extra(info)["cells"]}

    @property
    def layers(self) -> dict[str, Any]:
        """The arguments for the recurrent layers in the constructor of every model."""
        names = ("hidden_size", "num_layers", "cell", "kernel_size", "pooling", "zoneout", "dropout")
        return {name: getattr(self, name) for name in names}

    @property
    def vocabulary(self) -> dict[str, Any]:
        """The arguments for `Vocabulary.build`; a task without `min_count` keeps every token."""
        smallest = getattr(self, "min_count", 1)
        return {"lowercase": self.lowercase, "max_size": self.max_vocabulary, "min_count": smallest}

    @property
    def stems(self) -> dict[str, str | None]:
        """The stems of files that the user has given, for the training data only."""
        return {"train": self.train, "valid": self.valid, "test": self.test}

    @property
    def hold_out_seed(self) -> int:
        """The seed by which missing splits are held out of train."""
        return self.seed if self.split_seed is None else self.split_seed

    def problems(self) -> Iterator[str]:
        """Mistakes that bounds cannot express, as "key: ...". A task adds its own to those of `super().problems()`."""
        for name, info in type(self).model_fields.items():
            value, cells = getattr(self, name), _extra(info)["cells"]
            if len(cells) < len(CELLS) and (value is None) == (self.cell in cells):
                what = "needs a value" if value is None else f"has none; it belongs to {' and '.join(cells)}"
                yield f"{name}: {self.cell} {what}"
        if isinstance(self.kernel_size, tuple) and len(self.kernel_size) != self.num_layers:
            yield (
                f"kernel_size: {len(self.kernel_size)} widths for num_layers={self.num_layers}; "
                "give one per layer, or one for all"
            )
        if self.warm_up >= 1 and self.warm_up != int(self.warm_up):
            yield f"warm_up: must be a number of steps, or a fraction of them below 1, got {self.warm_up}"
        if self.match == "parameters" and self.init_from is not None:
            yield "match: with --from the sizes are those of its model; leave it out"
        if self.match == "parameters" and self.cell == "qrnn":
            yield "match: only for --cell lstm, whose size it sets"
        if self.weight_decay and self.optimizer != "adamw":
            yield f"weight_decay: {self.optimizer} does not support it; use l2, or optimizer=adamw"
        if self.l2 and self.optimizer == "adamw":
            yield "l2: adamw does not support it; use weight_decay, or another optimizer"


S = TypeVar("S", bound=TaskSettings)


@dataclass(frozen=True)
class Preset(Generic[S]):
    """Named settings: those for `qrnn` in full, and the changes for another cell.

    by_cell: {"lstm": {"dropout": 0.2}}; values of keys that a cell does not have are dropped without being named.
    notes: where a value comes from, shown in place of the key's help: {"clip": "paper 3.2"}.
    """

    name: str
    qrnn: S
    by_cell: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        keys = type(self.qrnn).model_fields.keys()
        used = set(self.notes).union(*self.by_cell.values())
        assert used <= keys, f"preset {self.name}: there is no {sorted(used - keys)}"

    def for_cell(self, cell: str) -> S:
        """The preset for "qrnn" or "lstm". Settings that the cell does not have are None."""
        if cell not in CELLS:
            raise SettingsError(
                [f"--cell: must be one of {', '.join(CELLS)}, got {shown(cell)}{did_you_mean(cell, CELLS)}"]
            )
        absent = dict.fromkeys(type(self.qrnn).keys_without(cell))
        return changed(self.qrnn, {**absent, "cell": cell, **self.by_cell.get(cell, {})})


def apply_overrides(settings: S, overrides: Sequence[str], options: Mapping[str, str] = NO_OPTIONS) -> S:
    """Settings changed by ["key=value", ...], and by {key: value} of the options that the command has for some.

    Raises:
        SettingsError: all mistakes at once, each with the nearest key there is.
    """
    values, lines = _parse(settings, overrides, options)
    try:
        result = changed(settings, values)
    except SettingsError as error:
        raise SettingsError([*lines, *error.mistakes]) from None
    if lines:
        raise SettingsError(lines)
    return result


def describe(
    settings: TaskSettings,
    preset: Preset[Any],
    fitted: Collection[str] = (),
    amount: str = "",
    resolved: Mapping[str, str] = NO_OPTIONS,
    kept: Collection[str] = (),
) -> str:
    """What `--show` prints: every key as it could be given, by group, with `*` before what differs from the preset.

    Args:
        fitted: the keys whose value follows the size of the data; they have `=` before them.
        amount: that size.
        resolved: of keys that were given as auto, why they have their value.
        kept: the keys whose value is that of the model of --from; they have `<` before them.
    """
    defaults = preset.for_cell(settings.cell)
    rows: dict[str, list[tuple[str, str, str]]] = {group: [] for group in GROUPS}
    for name, info in type(settings).model_fields.items():
        extra, value, default = _extra(info), getattr(settings, name), getattr(defaults, name)
        if settings.cell not in extra["cells"]:
            continue
        comment = preset.notes.get(name, info.description or "")
        mark = "<" if name in kept else "=" if name in fitted else "*" if default != value else " "
        if name in kept:
            comment = f"as in --from; {info.description}"
        elif name in resolved:
            mark, comment = " ", resolved[name]
        elif name in fitted:
            share = "a third, with --from; " if name == "learning_rate" and settings.init_from is not None else ""
            comment = f"by the size of the data; {share}{info.description}"
        elif default != value:
            comment = f"{preset.name}: {as_text(default)}; {info.description}"
        given = f"{extra['option']} {as_text(value)}" if extra["option"] else f"{name}={as_text(value)}"
        rows.setdefault(extra["group"], []).append((mark, given, comment))
    width = max(len(given) for group in rows.values() for _, given, _ in group)
    marked = any(mark == "*" for group in rows.values() for mark, _, _ in group)
    lines = [f"preset {preset.name}" + (", changed where marked *" if marked else "")]
    if fitted:
        lines[0] += f", fitted to {amount} where marked ="
    if kept:
        lines[0] += f", as in {as_text(settings.init_from)} where marked <"
    for group, entries in rows.items():
        if entries:
            lines += ["", group, *(f"{mark} {given:<{width}}  # {comment}" for mark, given, comment in entries)]
    return "\n".join(lines)


def to_json(settings: TaskSettings) -> dict[str, Any]:
    """Every key with its value, fit for `json.dump`."""
    return settings.model_dump(mode="json")


def from_json(cls: type[S], data: Mapping[str, Any], where: str = "") -> S:
    """The settings that `to_json` gave; a key that is missing has its default, and one of a former name its new one.

    Raises:
        SettingsError: one for all that is wrong, beginning with `where`, the name of the file.
    """
    values = {}
    for key, value in data.items():
        name = cls.aliases.get(key, key)
        former = cls.value_aliases.get(name, {})
        values[name] = former.get(value, value) if isinstance(value, str) else value
    try:
        return cls.model_validate(values)
    except ValidationError as error:
        raise SettingsError(mistakes(error, cls), where) from None


def parsed_keys(
    settings: TaskSettings, overrides: Sequence[str], options: Mapping[str, str] = NO_OPTIONS
) -> dict[str, Any]:
    """The values that overrides and options give, by the present names of their keys."""
    return _parse(type(settings), overrides, options)[0]


def given_keys(settings: TaskSettings, overrides: Sequence[str], options: Mapping[str, str] = NO_OPTIONS) -> set[str]:
    """The keys that overrides and options name, by their present names."""
    return set(parsed_keys(settings, overrides, options))


def contradictions(saved: TaskSettings, overrides: Sequence[str], options: Mapping[str, str] = NO_OPTIONS) -> list[str]:
    """The KEYs given on resume that contradict the saved run, one line each; those in `MAY_CHANGE` never do."""
    asked, _ = _parse(saved, overrides, options)
    return [
        f"{_typed(saved, key)}: the run was started with {as_text(getattr(saved, key))}, not {as_text(value)}"
        for key, value in asked.items()
        if key not in MAY_CHANGE and not _same(type(saved).model_fields[key], value, getattr(saved, key))
    ]


def kept_keys(settings: TaskSettings, kind: str | None = None) -> set[str]:
    """The keys whose value is that of the model of --from, or those of one kind; see `setting`."""
    wanted = ("fixed", "default") if kind is None else (kind,)
    return {name for name in fields_of(settings) if _extra(type(settings).model_fields[name])["kept"] in wanted}


def _same(info: FieldInfo, value: Any, saved: Any) -> bool:
    """Whether two values of a key mean the same: an option that is a string names a file, by any of its paths."""
    if _extra(info)["option"] and isinstance(value, str) and isinstance(saved, str):
        return value == saved or Path(value).resolve() == Path(saved).resolve()
    return bool(value == saved)


def fields_of(settings: TaskSettings) -> list[str]:
    """The keys that the settings' cell has."""
    return [name for name, info in type(settings).model_fields.items() if settings.cell in _extra(info)["cells"]]


def as_text(value: Any) -> str:
    """A value as it is typed after the = of KEY=VALUE."""
    if isinstance(value, tuple):
        return ",".join(map(as_text, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return printable(str(value))


def _typed(settings: TaskSettings, key: str) -> str:
    """A key as the user gives it: --from, hidden_size."""
    return _extra(type(settings).model_fields[key])["option"] or key


def _extra(info: FieldInfo) -> dict[str, Any]:
    assert isinstance(info.json_schema_extra, dict)
    return info.json_schema_extra


def changed(settings: S, changes: Mapping[str, Any]) -> S:
    """Other settings with these values; SettingsError with all that is wrong with them."""
    try:
        return type(settings).model_validate({**dict(settings), **changes})
    except ValidationError as error:
        lines = mistakes(error, type(settings))
        wrong = {each["loc"][0] for each in error.errors() if each["loc"]}
        right = {key: value for key, value in changes.items() if key not in wrong}
        if len(right) < len(changes):
            # What no bound of one key can say is checked only where all bounds are kept.
            try:
                changed(settings, right)
            except SettingsError as more:
                lines += more.mistakes
        raise SettingsError(lines) from None


def _parse(
    settings: TaskSettings | type[TaskSettings], overrides: Sequence[str], options: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """What overrides and options say, by key, and their mistakes. Bounds are left to the settings themselves."""
    cls = settings if isinstance(settings, type) else type(settings)
    fields, hints = cls.model_fields, get_type_hints(cls, include_extras=True)
    values: dict[str, Any] = {key: value for key, value in options.items() if key in fields}
    lines = [f"--{key}: this task has no such option" for key in options if key not in fields]
    seen = set()
    for override in overrides:
        key, equals, text = (part.strip() for part in override.partition("="))
        if not equals:
            lines.append(f"{shown(override)}: must be KEY=VALUE")
            continue
        key = cls.aliases.get(key, key)
        text = cls.value_aliases.get(key, {}).get(text, text)
        if key not in fields:
            lines.append(no_such_key(key, fields))
            continue
        if key in seen:
            lines.append(f"{key}: given twice")
        seen.add(key)
        extra = _extra(fields[key])
        if option := extra["option"]:
            lines.append(f"{key}: not a KEY; use {option} {as_text(text)}")
            continue
        try:
            values[key] = _value(text, hints[key], may_be_none=len(extra["cells"]) == len(CELLS))
        except ValueError as error:
            lines.append(f"{key}: {error}")
    return values, lines


def _value(text: str, hint: Any, may_be_none: bool) -> Any:
    """The text after = as the type of its key; ValueError with what it must be."""
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
            numbers = [_number(part, int) for part in text.split(",")]
            if None not in numbers:
                return tuple(numbers)
    expected = " or ".join(describe_type(kind) for kind in kinds)
    raise ValueError(f"must be {expected}, got {shown(text)}{did_you_mean(text, choices) if choices else ''}")


def _number(text: str, kind: type) -> float | int | None:
    """A number as people write it, 1_000 or 1e4; None if it is none of its kind."""
    text = text.strip()
    if not NUMBER.fullmatch(text):
        return None
    number = float(text)
    if kind is float:
        return number if math.isfinite(number) else None
    # 1e4 and 5.0 are integers as well, 1e-4 is not. Below this limit floats hold every integer.
    return int(number) if abs(number) < LARGEST_INTEGER and number.is_integer() else None
