"""Defaults by the size of the data, and what is said of a training on it."""

import json

import pytest

from cli.command import here
from quasirnn.data.corpus import Part
from quasirnn.tasks import language_model, sentiment, translation
from quasirnn.tasks.evaluation import Baselines, describe
from quasirnn.tasks.fitting import Amount, Rule
from quasirnn.tasks.settings import SettingsError, apply_overrides
from quasirnn.training.update import StepInfo, warm_up_cosine

RULE = Rule(
    by_tokens={"hidden_size": ((1e3, 32), (1e5, 96)), "dropout": ((1e3, 0.5), (1e5, 0.3))},
    by_items={"batch_size": ((100, 8), (10_000, 32))},
    steps=((100, 200), (10_000, 2_000)),
)


def test_values_follow_the_size():
    small, large = (RULE.values(Amount(tokens, items, "words"), {}) for tokens, items in ((10, 100), (10**9, 10**4)))
    assert small == {
        "hidden_size": 32,
        "dropout": 0.5,
        "batch_size": 8,
        "epochs": 16,
        "patience": 4,
        "precision": "float32",
    }
    assert large == {**small, "hidden_size": 96, "dropout": 0.3, "batch_size": 32, "epochs": 7, "patience": 2}


def test_what_is_given_stays_and_the_rest_follows_it():
    values = RULE.values(Amount(10, 100, "words"), {"batch_size": 16, "hidden_size": 512})
    assert values == {"dropout": 0.5, "epochs": 32, "patience": 8, "precision": "auto"}
    assert "patience" not in RULE.values(Amount(10, 100, "words"), {"patience": None})


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
@pytest.mark.parametrize("rows", [1, 30, 300, 5_000, 100_000])
def test_every_size_gives_settings_that_can_be_used(rows, cell):
    texts = ["a dull film that I would not see again"] * rows
    parts = {
        sentiment.TASK: Part({"label": ["neg"] * rows, "text": texts}),
        translation.TASK: Part({"source": texts, "target": texts}),
        language_model.TASK: Part({"text": ["\n".join(texts)]}),
    }
    for task, part in parts.items():
        settings, fitted = task.fit(task.presets["fast"].for_cell(cell), part, "fast", set())
        assert {"hidden_size", "epochs", "patience"} <= fitted.keys
        assert settings.patience <= settings.epochs <= 40
        assert task.fit(settings, part, "paper", set()) == (settings, None)


def test_little_text_is_read_by_characters_unless_told_otherwise():
    task, preset = language_model.TASK, language_model.FAST.qrnn
    plain, replaced = Part({"text": ["a rose is a rose\n"]}), Part({"text": ["a <unk> is a rose\n"]})
    assert task.fit(preset, plain, "fast", set())[0].level == "character"
    assert task.fit(preset, replaced, "fast", set())[0].level == "word"
    assert task.fit(preset, plain, "fast", {"level"})[0].level == "word"


def test_layers_and_widths_of_the_translator_go_together():
    task, part = translation.TASK, Part({"source": ["eins"], "target": ["one"]})
    settings, _ = task.fit(translation.FAST.qrnn, part, "fast", set())
    assert (settings.num_layers, settings.kernel_size) == (2, (6, 2))
    given = apply_overrides(translation.FAST.qrnn, ["kernel_size=4"])
    settings, _ = task.fit(given, part, "fast", {"kernel_size"})
    assert (settings.num_layers, settings.kernel_size) == (2, 4)


def test_warm_up_is_a_number_of_steps_or_a_share_of_them():
    def rates(warm_up):
        rate = warm_up_cosine(warm_up)
        return [rate(StepInfo(step, epoch=0, steps_per_epoch=40, total_steps=40)) for step in range(40)]

    assert rates(0.1) == rates(4)
    with pytest.raises(
        SettingsError, match=r"warm_up: must be a number of steps, or a fraction of them below 1, got 1.5"
    ):
        apply_overrides(sentiment.FAST.qrnn, ["warm_up=1.5"])


@pytest.mark.parametrize(
    ("value", "others", "said"),
    [
        (80.0, {"always neg": 50.0, "bag of words": 70.0}, "The network is better."),
        (72.0, {"always neg": 50.0, "bag of words": 70.0}, "better, but the difference may be chance."),
        (69.0, {"always neg": 50.0, "bag of words": 70.0}, "not better than bag of words. Try."),
    ],
)
def test_the_verdict(value, others, said):
    (line,) = describe(value, Baselines("accuracy", others, " %", True, rows=400, advice="Try."))
    assert line.startswith(f"Validation accuracy {value} % (400 rows, so +-")
    assert "; always neg 50.0 %, bag of words 70.0 %. " in line
    assert line.endswith(said)


def test_lower_is_better_of_perplexities():
    (line,) = describe(9.0, Baselines("perplexity", {"counts": 8.0}))
    assert line == "Validation perplexity 9.000; counts 8.000. The network is not better than counts."


def test_a_first_training_on_own_data_learns_and_is_judged(tmp_path):
    """Thirty short texts per class, no argument but --data: not one class for all, as a warm-up of 200 steps gave."""
    words = {"neg": ("dull", "awful", "weak"), "pos": ("great", "lovely", "bright")}
    rows = [
        f"{label}\tthe {thing} was {word} that {day}\n"
        for day in ("monday", "friday")
        for thing in ("film", "book", "play", "song", "show")
        for label, three in words.items()
        for word in three
    ]
    (tmp_path / "mine.tsv").write_text("".join(rows))
    run = tmp_path / "run"
    shown = here("train", "sentiment", "--data", tmp_path / "mine.tsv", "--show")
    assert shown.stdout.startswith("sentiment, preset fast, fitted to 288 words where marked =\n")
    assert "= hidden_size=32 " in shown.stdout
    result = here("train", "sentiment", "--data", tmp_path / "mine.tsv", "--out", run, "epochs=8")
    assert result.code == 0
    saved = json.loads((run / "training.json").read_text())["settings"]
    assert (saved["hidden_size"], saved["epochs"], saved["patience"], saved["warm_up"]) == (32, 8, 2, 0.07)
    assert "\nSettings chosen for 288 words: hidden_size=32 num_layers=1 " in result.stderr
    assert "Validation accuracy 100.0 % (6 rows, so +-" in result.stderr
    assert (
        "; always neg 50.0 %, bag of words 100.0 %, words and pairs 100.0 %. The network is not better" in result.stderr
    )
    kept = json.loads((run / "baselines.json").read_text())
    assert kept["network"] == kept["baselines"]["bag of words"] == 100.0
