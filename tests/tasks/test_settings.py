"""Settings: what KEY=VALUE gives, and every mistake told at once."""

import json
import math
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quasirnn.tasks.settings import (
    MAY_CHANGE,
    Preset,
    SettingsError,
    TaskSettings,
    apply_overrides,
    contradictions,
    describe,
    from_json,
    setting,
    to_json,
)


class Example(TaskSettings):
    level: Literal["word", "character"] = setting("word", help="whether a token is a word or a character", group="data")
    tied: bool = setting(False, help="one matrix for embedding and softmax", group="model")
    length: int = setting(105, help="steps of a window", group="optimisation", at_least=1)

    def problems(self):
        yield from super().problems()
        if self.tied and self.level == "character":
            yield "tied: needs level=word"


PAPER = Preset(
    "paper",
    Example(hidden_size=640, num_layers=2, batch_size=20, learning_rate=1.0, epochs=72, zoneout=0.1, clip=10.0),
    by_cell={"lstm": {"dropout": 0.2}},
    notes={"clip": "paper 3.2"},
)
QRNN, LSTM = PAPER.for_cell("qrnn"), PAPER.for_cell("lstm")


def changed_to(**values) -> Example:
    return from_json(Example, {**dict(QRNN), **values})


def mistakes(*overrides: str, settings: Example = QRNN) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        apply_overrides(settings, overrides)
    assert "\n" not in str(caught.value)
    return caught.value.mistakes


GOOD = {
    "hidden_size=650": 650,
    "hidden_size=1_000": 1000,
    "hidden_size=1e4": 10_000,
    "hidden_size=2.5e1": 25,
    "seed=0": 0,
    "learning_rate=20": 20.0,
    "learning_rate=1e-3": 1e-3,
    "learning_rate=.5": 0.5,
    " learning_rate = 5. ": 5.0,
    "kernel_size=3": 3,
    "kernel_size=6,2": (6, 2),
    "kernel_size=6, 2": (6, 2),
    "tied=true": True,
    "tied=Yes": True,
    "tied=0": False,
    "pooling=ifo": "ifo",
    "precision=bfloat16": "bfloat16",
    "clip=none": None,
    "max_steps=None": None,
    "max_steps=9007199254740991": 9007199254740991,
    "train=a=b": "a=b",
    "train=": "",
    "train=none": None,
}


@pytest.mark.parametrize(("override", "value"), GOOD.items(), ids=GOOD)
def test_an_override_is_read_by_the_type_of_its_key(override, value):
    changed = apply_overrides(QRNN, [override])
    key = override.partition("=")[0].strip()
    assert getattr(changed, key) == value
    assert type(getattr(changed, key)) is type(value)
    assert changed == changed_to(**{key: value})


BAD = {
    "zoneoutt=0.1": "zoneoutt: no such key; did you mean zoneout?",
    "Hidden-Size=3": "'Hidden-Size': no such key; did you mean hidden_size?",
    "=3": "'': no such key; the keys are cell, hidden_size, ",
    "qqq=3": "qqq: no such key; the keys are cell, hidden_size, ",
    "epochs": "'epochs': must be KEY=VALUE",
    "cell=lstm": "cell: not a KEY; use --cell lstm",
    "hidden_size=": "hidden_size: must be an integer, got ''",
    "hidden_size=1.5": "hidden_size: must be an integer, got '1.5'",
    "hidden_size=1e-4": "hidden_size: must be an integer, got '1e-4'",
    "hidden_size=1e400": "hidden_size: must be an integer, got '1e400'",
    "max_steps=9007199254740992": "max_steps: must be an integer or none, got '9007199254740992'",
    "hidden_size=\u0663": "hidden_size: must be an integer, got '\u0663'",
    "hidden_size=none": "hidden_size: must be an integer, got 'none'",
    "hidden_size=0": "hidden_size: must be at least 1, got 0",
    "hidden_size=1e6": "hidden_size: must be at most 65536, got 1000000",
    "train=\udcff": "train: holds half of a surrogate pair, which is no character",
    "cell=a\nb": "cell: not a KEY; use --cell 'a\\nb'",
    "learning_rate=0": "learning_rate: must be above 0, got 0.0",
    "learning_rate=inf": "learning_rate: must be a number, got 'inf'",
    "learning_rate=nan": "learning_rate: must be a number, got 'nan'",
    "clip=ten": "clip: must be a number or none, got 'ten'",
    "zoneout=1": "zoneout: must be below 1, got 1.0",
    "zoneout=none": "zoneout: must be a number, got 'none'",
    "dropout=-0.1": "dropout: must be at least 0, got -0.1",
    "kernel_size=2,2,2": "kernel_size: 3 widths for num_layers=2; give one per layer, or one for all",
    "kernel_size=2,0": "kernel_size: must be at least 1, got 0",
    "kernel_size=2,": "kernel_size: must be an integer or a list of integers, got '2,'",
    "pooling=fio": "pooling: must be one of f, fo, ifo, got 'fio'; did you mean fo?",
    "level=sentence": "level: must be one of word, character, got 'sentence'",
    "tied=maybe": "tied: must be true or false, got 'maybe'",
}


@pytest.mark.parametrize(("override", "message"), BAD.items(), ids=[ascii(key) for key in BAD])
def test_a_mistake_is_told_with_what_would_be_right(override, message):
    (mistake,) = mistakes(override)
    assert mistake.startswith(message)


def test_all_mistakes_are_told_together():
    wrong = ["zoneoutt=1", "batch_size=0", "batch_size=5", "epochs", "kernel_size=1,2,3", "tied=yes", "level=character"]
    with pytest.raises(SettingsError) as caught:
        apply_overrides(QRNN, ["hidden_size=x", *wrong])
    assert str(caught.value) == (
        "6 mistakes: (1) hidden_size: must be an integer, got 'x' (2) zoneoutt: no such key; did you mean zoneout? "
        "(3) batch_size: given twice (4) 'epochs': must be KEY=VALUE (5) kernel_size: 3 widths for num_layers=2; "
        "give one per layer, or one for all (6) tied: needs level=word"
    )


def test_one_mistake_stands_alone():
    with pytest.raises(SettingsError, match=r"^batch_size: must be at least 1, got 0$"):
        apply_overrides(QRNN, ["batch_size=0"])


@given(st.lists(st.text(max_size=20) | st.builds("{}={}".format, st.sampled_from(sorted(GOOD)), st.text(max_size=20))))
def test_any_text_is_an_override_or_a_settings_error(overrides):
    try:
        apply_overrides(QRNN, overrides)
    except SettingsError:
        mistakes(*overrides)


@given(key=st.sampled_from([*Example.model_fields]), text=st.text(max_size=20))
def test_any_value_is_taken_or_a_settings_error(key, text):
    try:
        changed = apply_overrides(QRNN, [f"{key}={text}"])
    except SettingsError:
        mistakes(f"{key}={text}")
    else:
        assert from_json(Example, json.loads(json.dumps(to_json(changed)))) == changed


def test_settings_that_break_a_rule_cannot_be_made():
    with pytest.raises(
        SettingsError, match=r"2 mistakes: \(1\) hidden_size: must be an integer, got '640' \(2\) epochs"
    ):
        changed_to(hidden_size="640", epochs=math.inf)
    assert changed_to(learning_rate=1).learning_rate == 1.0


def test_an_lstm_has_no_value_for_what_belongs_to_the_qrnn():
    assert (LSTM.cell, LSTM.zoneout, LSTM.kernel_size, LSTM.pooling) == ("lstm", None, None, None)
    assert (LSTM.dropout, LSTM.hidden_size) == (0.2, 640)
    assert PAPER.qrnn == QRNN
    assert mistakes("zoneout=0.1", "kernel_size=2", "epochs=-1", settings=LSTM) == (
        "epochs: must be at least 0, got -1",
        "kernel_size: lstm has none; it belongs to qrnn",
        "zoneout: lstm has none; it belongs to qrnn",
    )
    assert mistakes("zoneout=none", settings=LSTM) == ("zoneout: must be a number, got 'none'",)
    with pytest.raises(SettingsError, match="zoneout: qrnn needs a value"):
        changed_to(zoneout=None)
    with pytest.raises(SettingsError, match=r"--cell: must be one of qrnn, lstm, got 'lsmt'; did you mean lstm\?"):
        PAPER.for_cell("lsmt")


def test_a_preset_names_keys_that_there_are():
    with pytest.raises(AssertionError, match=r"preset new: there is no \['clap', 'clup'\]"):
        Preset("new", QRNN, notes={"clup": "ours"}, by_cell={"lstm": {"clap": 1.0}})


def test_show_prints_every_key_with_its_comment():
    text = describe(apply_overrides(QRNN, ["kernel_size=6,2", "tied=yes"]), PAPER)
    lines = text.split("\n")
    assert lines[0] == "preset paper, changed where marked *"
    assert "* kernel_size=6,2       # paper: 2; width of the convolution, or one per layer: 6,2,2" in lines
    assert "  clip=10.0             # paper 3.2" in lines
    assert "  --cell qrnn           # qrnn, or an LSTM with as many units" in lines
    assert "  max_steps=none        # stop after this many steps" in lines
    assert [line for line in lines[1:] if line and line[0] not in " *"] == ["data", "model", "optimisation", "run"]
    assert sum(line.startswith("*") for line in lines) == 2


@pytest.mark.parametrize("settings", [QRNN, LSTM], ids=["qrnn", "lstm"])
def test_what_show_prints_can_be_typed(settings):
    text = describe(settings, PAPER)
    assert "*" not in text
    shown = [line[2:].partition("  #")[0].strip() for line in text.split("\n") if line.startswith("  ")]
    assert ("zoneout=0.1" in shown) == (settings.cell == "qrnn")
    overrides = [line for line in shown if not line.startswith("--")]
    others = 0 if settings.cell == "qrnn" else 3
    assert len(shown) == len(Example.model_fields) - others
    assert apply_overrides(settings, overrides) == settings


@pytest.mark.parametrize("settings", [QRNN, LSTM, apply_overrides(QRNN, ["kernel_size=6,2"])])
def test_settings_survive_json(settings):
    data = to_json(settings)
    assert list(data) == [*Example.model_fields]
    assert from_json(Example, json.loads(json.dumps(data))) == settings


def test_json_is_read_strictly():
    data = to_json(QRNN)
    right = {"tied": 1, "epochs": 1.5, "seed": True, "kernel_size": [2, "2"], "level": None}
    with pytest.raises(SettingsError) as caught:
        from_json(Example, data | right, "training.json")
    assert caught.value.mistakes == (
        "kernel_size: must be an integer or a list of integers or none, got [2, '2']",
        "epochs: must be an integer, got 1.5",
        "seed: must be an integer, got True",
        "level: must be one of word, character, got None",
        "tied: must be true or false, got 1",
    )
    assert str(caught.value).startswith("training.json: 5 mistakes: (1) kernel_size: must be ")
    del data["hidden_size"], data["clip"]
    with pytest.raises(SettingsError) as caught:
        from_json(Example, data | {"cliip": 1.0, "a\nb": 2}, "training.json")
    cliip, broken, missing = caught.value.mistakes
    assert cliip == "cliip: no such key; did you mean clip?"
    assert broken.startswith("'a\\nb': no such key; the keys are ")
    assert missing == "hidden_size: missing"
    assert from_json(Example, data | {"hidden_size": 640}).clip is None


def test_json_of_something_else_is_refused_shortly():
    with pytest.raises(SettingsError, match=r"\(4\) 9997 more unknown keys \(5\) hidden_size: missing") as caught:
        from_json(Example, {f"key {n}": n for n in range(10_000)}, "training.json")
    assert len(str(caught.value)) < 2000


def test_what_a_resume_may_change():
    assert MAY_CHANGE == ("epochs", "max_steps", "max_minutes", "checkpoint_every", "precision")
    assert (
        contradictions(QRNN, ["epochs=3", "max_steps=5", "max_minutes=1", "checkpoint_every=7", "zoneout=1e-1"]) == []
    )
    assert contradictions(QRNN, ["zoneout=.2", "clip=none", "epochs=3"]) == [
        "zoneout: the run was started with 0.1, not 0.2",
        "clip: the run was started with 10.0, not none",
    ]


def test_what_the_command_has_an_option_for_is_given_beside_the_keys():
    assert apply_overrides(QRNN, ["epochs=3"], {"train": "mine"}) == changed_to(epochs=3, train="mine")
    with pytest.raises(SettingsError) as caught:
        apply_overrides(QRNN, ["epochs=x"], {"vectors": "glove.txt", "train": "\udcff"})
    assert caught.value.mistakes == (
        "--vectors: this task has no such option",
        "epochs: must be an integer, got 'x'",
        "train: holds half of a surrogate pair, which is no character",
    )
    started = apply_overrides(QRNN, [], {"train": "mine"})
    assert contradictions(started, [], {"train": "mine"}) == []
    assert contradictions(started, ["epochs=5"], {"train": "other"}) == [
        "train: the run was started with mine, not other"
    ]
