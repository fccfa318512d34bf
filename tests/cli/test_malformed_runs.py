"""Run folders that were damaged or made up: every command says so in one line."""

import json
import os
import shutil
import struct
import zlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cli.command import here
from quasirnn.data.vocabulary import Vocabulary
from tasks.tiny_translation import train_runs

# Commands before the run, and what follows it.
USES = (
    (("evaluate",), ()),
    (("evaluate",), ("--json",)),
    (("generate",), ("--length", "3")),
    (("score",), ("the cat",)),
    (("score",), ("the cat", "--json")),
)
# Every command reads a run alike. With these, all of them are tried; with other damages, one or the other.
TRIED_WITH_ALL = ("training.json missing", "classes missing", "vocabulary without end", "weights truncated")


def told_of(run: Path, damage: str, uses) -> str:
    """What the commands that use a model say of a damaged run: the same, and nothing is made."""
    before = sorted(run.rglob("*"))
    chosen = uses if damage in TRIED_WITH_ALL else [uses[zlib.crc32(damage.encode()) % len(uses)]]
    told = {here(*command, run, *arguments).mistake for command, arguments in chosen}
    assert len(told) == 1, "every command says the same"
    assert sorted(run.rglob("*")) == before
    return told.pop()


def assert_not_resumed(run: Path, task: str, longer: str = "epochs=9") -> None:
    """The file at fault is named, and the run stays as it was."""
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert here("train", task, "--out", run, "--resume", longer).mistake.startswith(f"{run}/")
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def remove(name):
    return lambda run: (run / name).unlink()


def truncate(name, size):
    return lambda run: os.truncate(run / name, size)


def write(name, content):
    return lambda run: (run / name).write_bytes(content)


def change(name, **values):
    """Other values in a JSON file; None takes one away."""

    def apply(run: Path) -> None:
        data = json.loads((run / name).read_text()) | values
        (run / name).write_text(json.dumps({key: value for key, value in data.items() if value is not None}))

    return apply


def change_setting(**values):
    def apply(run: Path) -> None:
        data = json.loads((run / "training.json").read_text())
        change("training.json", settings=data["settings"] | values)(run)

    return apply


def change_corpus(**values):
    """Other values of what the training recorded of its texts; None takes one away."""

    def apply(run: Path) -> None:
        corpus = json.loads((run / "training.json").read_text())["corpus"] | values
        kept = {key: value for key, value in corpus.items() if value is not None}
        change("training.json", corpus=kept)(run)

    return apply


def change_weights(work):
    def apply(run: Path) -> None:
        weights = load_file(run / "model.safetensors")
        save_file({name: work(tensor) for name, tensor in weights.items()}, run / "model.safetensors")

    return apply


def of_an_older_version(change):
    """Without the hashes that would notice the change first."""

    def apply(run: Path) -> None:
        change_weights(lambda tensor: tensor)(run)
        change(run)

    return apply


def checkpoints(work):
    """The same to every checkpoint."""

    def apply(run: Path) -> None:
        for folder in (run / "checkpoint").iterdir():
            work(folder)

    return apply


# What was done to the run, and what is said of it.
UNUSABLE = {
    "training.json missing": (remove("training.json"), "training.json: no such file. Is "),
    "training.json truncated": (truncate("training.json", 100), "training.json: invalid JSON: "),
    "training.json of another kind": (write("training.json", b"[1, 2]"), "training.json: must be one JSON object"),
    "training.json not UTF-8": (write("training.json", b'{"\xff": 1}'), "training.json: not UTF-8: byte 2 is 0xff."),
    "unknown task": (change("training.json", task="dance"), "training.json: dance: no such task; the tasks are "),
    "no settings": (change("training.json", settings=None), "training.json: settings: missing."),
    "unknown KEY": (change_setting(hiden_size=3), "training.json: hiden_size: no such key; did you mean hidden_size?"),
    "KEY of another type": (change_setting(length="8"), "training.json: length: must be an integer, got '8'"),
    "vocabulary missing": (remove("vocabulary.json"), "vocabulary.json: no such file."),
    "vocabulary truncated": (truncate("vocabulary.json", 60), "vocabulary.json: invalid JSON: "),
    "vocabulary of another run": (
        change("vocabulary.json", tokens=["<eos>", "<unk>", "a"]),
        "vocabulary.json: ",
    ),
    "vocabulary without specials": (change("vocabulary.json", specials={}), "vocabulary.json: "),
    "vocabulary of another level": (change("vocabulary.json", kind="character"), "vocabulary.json: "),
    "level of another vocabulary": (change_setting(level="character"), "vocabulary.json: "),
    "config missing": (remove("config.json"), "config.json: no such file."),
    "config truncated": (truncate("config.json", 30), "config.json: invalid JSON: "),
    "config of another model": (change("config.json", model="Translator"), "config.json: "),
    "config with another size": (change("config.json", hidden_size=9), ""),
    "config with a huge size": (change("config.json", hidden_size=10**12), "config.json: "),
    "config with another cell": (change("config.json", cell="lstm"), "config.json: "),
    "config with a dropout that is no probability": (
        change("config.json", output_dropout=2147483648),
        "config.json: does not describe a model: LanguageModel: output_dropout is a probability and must be in [0, 1]",
    ),
    "config with nonsense": (change("config.json", hidden_size="many"), "config.json: "),
}
# The best model is not needed to train on.
WITHOUT_MODEL = {
    "weights missing": (
        remove("model.safetensors"),
        "model.safetensors: no such file. A run has no model before its first validation. To continue the run: "
        "--resume.",
    ),
    "weights empty": (truncate("model.safetensors", 0), "model.safetensors: not a complete safetensors file: "),
    "weights truncated": (truncate("model.safetensors", 900), "model.safetensors: not a complete safetensors file: "),
    "weights with a huge header": (write("model.safetensors", struct.pack("<Q", 2**62)), "model.safetensors: "),
    "weights that are no weights": (write("model.safetensors", b"\x80\x04pickle" * 99), "model.safetensors: "),
    "weights of another shape": (
        change_weights(lambda tensor: tensor[..., :-1].contiguous()),
        "model.safetensors: embedding.weight has shape (13, 7), the model needs (13, 8).",
    ),
    "weights of another type": (
        change_weights(torch.Tensor.double),
        "model.safetensors: embedding.weight is float64, the model needs float32.",
    ),
    "weights that are no numbers": (
        change_weights(lambda tensor: tensor * float("nan")),
        "model.safetensors: contains NaN or infinite values.",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE | WITHOUT_MODEL)
def test_guarantee_model_files_run_no_code_using_a_malformed_run(own_run, name):
    damage, message = (UNUSABLE | WITHOUT_MODEL)[name]
    damage(own_run)
    assert told_of(own_run, name, USES).startswith(f"{own_run}/{message}")


@pytest.mark.parametrize("damage", [damage for damage, _ in UNUSABLE.values()], ids=UNUSABLE)
def test_guarantee_model_files_run_no_code_resuming_a_malformed_run(own_run, damage):
    damage(own_run)
    assert_not_resumed(own_run, "language-model", "epochs=2")


def test_guarantee_model_files_absurd_weights_end_in_one_line(own_run):
    """Finite, so that they are loaded, and no training's: their products overflow."""
    change_weights(lambda tensor: torch.randn_like(tensor).sign() * 3e38)(own_run)
    for words in (("generate", "--length", "3"), ("generate", "--length", "3", "--temperature", "0")):
        mistake = here(words[0], own_run, *words[1:]).mistake
        assert mistake.startswith("sample: the model's output is not finite, so its weights are damaged.")
    # A figure may be infinite.
    assert here("score", own_run, "the cat").code == 0


WRONG_CLASSES = "training.json: must name 2 different classes, as the model has, got "

# What a classifier has besides, and what no language model has wrong.
CLASSIFIER = {
    "classes missing": (change_corpus(classes=None), "training.json: classes of the corpus must be "),
    "classes of another type": (change_corpus(classes=["bad", 1]), "training.json: classes of the corpus must be "),
    "too few classes": (change_corpus(classes=["bad"]), WRONG_CLASSES),
    "too many classes": (
        change_corpus(classes=["bad", "fair", "good"]),
        WRONG_CLASSES,
    ),
    "a class twice": (change_corpus(classes=["bad", "bad"]), WRONG_CLASSES),
    "KEY of another type": (
        change_setting(max_length="8"),
        "training.json: max_length: must be an integer or none, got",
    ),
    "KEY of another task": (change_setting(level="word"), "training.json: level: no such key"),
    "vocabulary of characters": (
        lambda run: (run / "vocabulary.json").write_text(Vocabulary.from_text("abc", "character").to_json()),
        "vocabulary.json: the kind must be word, got character.",
    ),
    "vocabulary of another tokeniser": (
        change("vocabulary.json", tokeniser="whitespace"),
        "vocabulary.json: must have the tokeniser review, got whitespace.",
    ),
    "vocabulary without padding": (
        change("vocabulary.json", specials={"unknown": "<unk>"}),
        'vocabulary.json: "specials" lacks padding.',
    ),
    "vocabulary of another run": (change("vocabulary.json", tokens=["<pad>", "<unk>", "a"]), "vocabulary.json: has 3 "),
    "config of another model": (
        change("config.json", model="LanguageModel"),
        "config.json: contains a 'LanguageModel'",
    ),
    "config with another class": (change("config.json", num_classes=3), "model.safetensors: output.weight has shape"),
    "config with another padding": (change("config.json", padding=99), "config.json: does not describe a model: "),
    "config with another dropout": (change("config.json", dropout=1.5), "config.json: does not describe a model: "),
    "config with another cell": (change("config.json", cell="lstm"), "config.json: "),
}
CLASSIFIER_USES = (
    (("evaluate",), ()),
    (("classify",), ("great film",)),
    (("plot", "states"), ("great film",)),
    (("plot", "confusion"), ()),
)


@pytest.mark.parametrize("name", [*CLASSIFIER, "weights missing", "weights truncated", "weights that are no numbers"])
def test_guarantee_model_files_run_no_code_using_a_malformed_classifier(own_sentiment, name):
    damage, message = (CLASSIFIER | WITHOUT_MODEL)[name]
    damage(own_sentiment)
    assert told_of(own_sentiment, name, CLASSIFIER_USES).startswith(f"{own_sentiment}/{message}")


def test_no_classifier_at_all(tmp_path):
    told = told_of(tmp_path / "none", "training.json missing", CLASSIFIER_USES)
    assert told.startswith(f"{tmp_path}/none: no such folder. `quasirnn train` creates runs")
    told = told_of(tmp_path, "training.json missing", CLASSIFIER_USES)
    assert told.startswith(f"{tmp_path}/training.json: no such file. Is ")


@pytest.mark.parametrize("name", [name for name in CLASSIFIER if name.startswith(("KEY", "vocabulary", "config"))])
def test_guarantee_model_files_run_no_code_resuming_a_malformed_classifier(own_sentiment, name):
    CLASSIFIER[name][0](own_sentiment)
    assert_not_resumed(own_sentiment, "sentiment")


def without_special(role):
    """A vocabulary in which another character has the place of a mark."""

    def apply(run: Path) -> None:
        data = json.loads((run / "vocabulary.json").read_text())
        data["tokens"][data["tokens"].index(data["specials"].pop(role))] = "%"
        (run / "vocabulary.json").write_text(json.dumps(data))

    return apply


# What a translator has besides.
TRANSLATOR = {
    **{
        f"vocabulary without {role}": (without_special(role), f'vocabulary.json: "specials" lacks {role}.')
        for role in ("padding", "start", "end", "unknown")
    },
    "vocabulary without specials": (change("vocabulary.json", specials={}), "vocabulary.json: "),
    "vocabulary of words": (
        lambda run: (run / "vocabulary.json").write_text(Vocabulary.from_text("a b", "word").to_json()),
        "vocabulary.json: the kind must be character, got word.",
    ),
    "vocabulary of another run": (
        change("vocabulary.json", tokens=["a", "</s>", "<pad>", "<s>", "\ufffd"]),
        "vocabulary.json: has 5 ",
    ),
    "KEY of another type": (
        change_setting(max_length="8"),
        "training.json: max_length: must be an integer or none, got",
    ),
    "KEY of another task": (change_setting(level="word"), "training.json: level: no such key"),
    "languages that are one": (change_setting(source="en"), "training.json: target: must differ from "),
    "config of another model": (
        change("config.json", model="LanguageModel"),
        "config.json: contains a 'LanguageModel'",
    ),
    "config with another size": (change("config.json", embedding_size=9), "model.safetensors: embedding.weight has "),
    "config with another width": (change("config.json", kernel_size=[4, 2]), "model.safetensors: encoder."),
    "config with another end": (change("config.json", end=99), "config.json: does not describe a model: "),
    "config with a letter for an end": (
        of_an_older_version(change("config.json", end=0)),
        "config.json: end is 0, but ",
    ),
    "config that was changed": (change("config.json", end=0), "config.json: damaged or changed since it was written"),
    "config with one mark twice": (change("config.json", start=0, end=0), "config.json: does not describe a model: "),
    "config with another dropout": (change("config.json", dropout=1.5), "config.json: does not describe a model: "),
    "config with another cell": (change("config.json", cell="lstm"), "config.json: "),
    **{
        name: WITHOUT_MODEL[name]
        for name in (
            "weights missing",
            "weights truncated",
            "weights that are no weights",
            "weights that are no numbers",
        )
    },
    "weights of another shape": (
        change_weights(lambda tensor: tensor[..., :-1].contiguous()),
        "model.safetensors: ",
    ),
}
TRANSLATOR_USES = (
    (("evaluate",), ()),
    (("translate",), ("c d",)),
    (("plot", "attention"), ("c d",)),
)


@pytest.fixture
def own_translation(tmp_path_factory, tmp_path):
    """A copy of a translator, to do with as one likes."""
    runs = train_runs(tmp_path_factory.getbasetemp() / "translation")
    return Path(shutil.copytree(runs / "qrnn", tmp_path / "run"))


@pytest.mark.parametrize("name", TRANSLATOR)
def test_guarantee_model_files_run_no_code_using_a_malformed_translator(own_translation, name):
    damage, message = TRANSLATOR[name]
    damage(own_translation)
    assert told_of(own_translation, name, TRANSLATOR_USES).startswith(f"{own_translation}/{message}")


@pytest.mark.parametrize("name", [name for name in TRANSLATOR if name.startswith(("KEY", "vocabulary", "config"))])
def test_guarantee_model_files_run_no_code_resuming_a_malformed_translator(own_translation, name):
    TRANSLATOR[name][0](own_translation)
    assert_not_resumed(own_translation, "translation")


BAD_CHECKPOINTS = {
    "truncated": (lambda folder: os.truncate(folder / "model.safetensors", 100), "model.safetensors has 100 bytes "),
    "changed": (
        lambda folder: (folder / "optimizer.safetensors").write_bytes(
            (folder / "optimizer.safetensors").read_bytes()[:-1] + b"\xff"
        ),
        "optimizer.safetensors has changed since it was written (SHA-256 differs)",
    ),
    "without state": (lambda folder: (folder / "state.json").unlink(), "state.json: no such file"),
    "with wrong JSON": (lambda folder: (folder / "state.json").write_text('{"format": 1'), "cannot be used: "),
}


@pytest.mark.parametrize(("work", "message"), BAD_CHECKPOINTS.values(), ids=BAD_CHECKPOINTS)
def test_guarantee_crash_safe_training_when_all_checkpoints_are_broken(own_run, work, message):
    checkpoints(work)(own_run)
    result = here("train", "language-model", "--out", own_run, "--resume", "epochs=2")
    assert (result.code, result.stdout) == (2, "")
    last = result.stderr.splitlines()[-1]
    assert last.startswith(f"quasirnn: no checkpoint to resume from: {own_run}/checkpoint/step-")
    assert message in last
    # The model itself is as good as before.
    assert here("generate", own_run, "--length", "3").code == 0


def test_guarantee_crash_safe_training_when_the_newest_checkpoint_is_broken(own_run):
    newest = max((own_run / "checkpoint").iterdir())
    os.truncate(newest / "model.safetensors", 100)
    result = here("train", "language-model", "--out", own_run, "--resume", "epochs=2")
    assert result.code == 0
    assert f"Note: {newest} cannot be used: model.safetensors has 100 bytes" in result.stderr
    assert "Resumed at step 10." in result.stderr


def test_a_run_without_its_model_can_go_on(own_run):
    (own_run / "model.safetensors").unlink()
    assert here("train", "language-model", "--out", own_run, "--resume", "epochs=2").code == 0


@pytest.mark.parametrize(("command", "arguments"), [*USES, (("train",), ())])
def test_no_run_at_all(tmp_path, command, arguments):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for name, message in (
        ("none", "none: no such folder. `quasirnn train` creates runs, by default under runs/."),
        ("file", "file: is a file. A run is a folder created by `quasirnn train`."),
        ("folder", "folder/training.json: no such file. Is "),
    ):
        if command != ("train",):
            assert message in here(*command, tmp_path / name, *arguments).mistake
        elif name != "none":
            assert message in here("train", "language-model", "--out", tmp_path / name, "--resume").mistake


def test_a_run_of_another_task(own_run):
    """One that says so and is not; what a real one is told is in test_classify.py."""
    change("training.json", task="translation")(own_run)
    for command, arguments in USES:
        assert here(*command, own_run, *arguments).mistake.startswith(str(own_run))
    mistake = here("train", "language-model", "--out", own_run, "--resume").mistake
    assert mistake == f"{own_run}: is a translation run, not a language-model run."


def test_a_run_of_an_unknown_preset(own_run):
    change("training.json", preset="speedy")(own_run)
    for extra in ([], ["--show"]):
        mistake = here("train", "language-model", "--out", own_run, "--resume", *extra).mistake
        assert mistake.startswith(f"{own_run}/training.json: language-model has no preset 'speedy'.")
