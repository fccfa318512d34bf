"""The run folder: made all at once, read with distrust."""

import dataclasses
import json
import os
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quasirnn import files
from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import WriteError
from quasirnn.models import LanguageModel
from quasirnn.tasks import run_folder
from quasirnn.tasks.registry import task_of
from quasirnn.tasks.run_folder import RunError, Training, check_new, create, default_path, open_run, resumed
from quasirnn.tasks.settings import SettingsError, TaskSettings, setting


class Settings(TaskSettings):
    length: int = setting(10, help="steps of a window", at_least=1)


SETTINGS = Settings(hidden_size=4, num_layers=2, kernel_size=(3, 1), batch_size=2, learning_rate=0.5, epochs=3)
TRAINING = Training("language-model", "demo", SETTINGS, ("texts",), {"sha256": "12ab", "tokens": 99}, "quasirnn train")
VOCABULARY = Vocabulary.from_text("to be or not\nto be\n", "word")


def model() -> LanguageModel:
    return LanguageModel(len(VOCABULARY), hidden_size=4, num_layers=2, kernel_size=(3, 1), tied=True)


def make(path: Path) -> run_folder.Run:
    best = model()
    run = create(path, training=TRAINING, config=best.config, vocabulary=VOCABULARY)
    run.save_model(best)
    run.metrics.write_text('{"event": "start", "step": 0}\n{"event": "valid", "step": 5, "loss": 1.5}\n{"event": "va')
    return run


@pytest.fixture
def run(tmp_path):
    return make(tmp_path / "runs" / "one")


def read_all(path: Path) -> None:
    """Everything that is ever read of a run."""
    run = open_run(path)
    task_of(run)
    run.read_training(Settings)
    run.read_metrics()
    run.load_model(LanguageModel, run.read_vocabulary())


def refusal(path: Path) -> str:
    """What reading says: one line that begins with the name of a file, or of the folder."""
    with pytest.raises(RunError) as caught:
        read_all(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    assert len(message) < 2500
    return message.removeprefix(f"{path}/")


def test_a_run_is_read_as_it_was_made(run):
    assert sorted(os.listdir(run.path)) == [
        "config.json",
        "environment.json",
        "metrics.jsonl",
        "model.safetensors",
        "training.json",
        "vocabulary.json",
    ]
    assert os.listdir(run.path.parent) == ["one"]
    again = open_run(str(run.path))
    assert again == run
    assert run.task() == "language-model"
    assert again.read_training(Settings) == TRAINING
    assert again.read_vocabulary() == VOCABULARY
    assert [record["step"] for record in again.read_metrics()] == [0, 5]
    best = again.load_model(LanguageModel, VOCABULARY)
    assert isinstance(best, LanguageModel)
    assert best.config == model().config


def test_the_best_model_takes_the_place_of_the_one_before(run):
    better = model()
    run.save_model(better)
    assert torch.equal(run.load_model(LanguageModel).embedding.weight, better.embedding.weight)


def test_guarantee_model_files_a_changed_vocabulary_is_noticed(run):
    """Two words exchanged: the same size, and another meaning of every id."""
    text = run.vocabulary.read_text()
    first, second = json.loads(text)["tokens"][-2:]
    swapped = text.replace(json.dumps(first), "\0").replace(json.dumps(second), json.dumps(first))
    run.vocabulary.write_text(swapped.replace("\0", json.dumps(second)))
    assert refusal(run.path).startswith("vocabulary.json: damaged or changed since it was written: sha256 differs.")


def test_limits_can_be_written_anew(run):
    longer = dataclasses.replace(TRAINING, settings=SETTINGS.model_copy(update={"epochs": 30}))
    run.write_training(longer)
    assert run.read_training(Settings) == longer


def test_environment_names_what_the_numbers_depend_on(run):
    about = json.loads(run.environment.read_text())
    assert about["torch"] == torch.__version__
    assert about["threads"] == torch.get_num_threads()
    assert about["backend"]["cpu"] in ("kernels", "plain")
    assert {"python", "quasirnn", "accelerate", "commit", "instruction_set", "platform", "cpu", "date"} <= about.keys()


def test_an_environment_without_packages_and_without_sources(monkeypatch, tmp_path):
    file = tmp_path / "site-packages" / "quasirnn" / "tasks" / "run_folder.py"
    monkeypatch.setattr(run_folder, "__file__", str(file))
    assert run_folder.commit() is None
    assert run_folder.version_of("no-such-package-anywhere") is None


def test_default_path_has_the_task_and_the_time():
    assert default_path("sentiment").parent == Path("runs")
    assert default_path("sentiment").name.startswith("sentiment-2")


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(f): (f.read_bytes(), f.stat().st_mtime_ns) for f in sorted(folder.rglob("*")) if f.is_file()}


def test_an_existing_run_is_not_touched(run):
    before = everything(run.path.parent)
    for attempt in (check_new, lambda path: create(path, training=TRAINING, config={}, vocabulary=None)):
        with pytest.raises(RunError, match=r"one: already exists. Continue it with --resume, or choose another --out."):
            attempt(run.path)
    assert everything(run.path.parent) == before


def test_an_empty_folder_a_file_and_a_dangling_link_are_there_already(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("folder", "file", "link"):
        with pytest.raises(RunError, match=f"{name}: already exists"):
            check_new(tmp_path / name)


def test_a_folder_that_cannot_be_made_is_told_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(
        RunError, match=r"file/a/b: cannot be created, because .*file is not a folder. Choose another --out."
    ):
        check_new(tmp_path / "file" / "a" / "b")
    check_new(tmp_path / "new" / "one")
    # Root may write anywhere, so the system's answer is made up.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(RunError, match=r"new/one: cannot be created, because .* is read-only. Choose another --out."):
        check_new(tmp_path / "new" / "one")
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["write_synced", "sync_folder"])
def test_a_run_that_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch, step):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, step, full)
    with pytest.raises(
        WriteError, match=r"cannot write .*one: No space left on device \(ENOSPC\); nothing was created"
    ):
        make(tmp_path / "one")
    assert os.listdir(tmp_path) == []


def test_a_vocabulary_that_could_not_be_read_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "MAX_VOCABULARY", 100)
    with pytest.raises(RunError, match=r"vocabulary\.json: would have \d+ bytes, more than 100. Keep fewer words"):
        make(tmp_path / "one")
    assert os.listdir(tmp_path) == []


def test_a_name_that_is_not_utf8_is_told(tmp_path):
    training = dataclasses.replace(TRAINING, data=("te\udcffxts",))
    with pytest.raises(
        RunError, match=(r"one: the name of the data, 'te\\udcffxts', is not valid UTF-8 and cannot be recorded")
    ):
        create(tmp_path / "one", training=training, config={})
    assert os.listdir(tmp_path) == []
    run = create(tmp_path / "one", training=dataclasses.replace(TRAINING, command="train \udcff"), config={})
    assert run.read_training(Settings).command == "train \\udcff"


def remove(name):
    return lambda path: (path / name).unlink()


def write(name, content):
    return lambda path: (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def change(name, **changes):
    def apply(path):
        data = json.loads((path / name).read_text()) | changes
        (path / name).write_text(json.dumps({key: value for key, value in data.items() if value is not None}))

    return apply


def change_settings(**changes):
    def apply(path):
        data = json.loads((path / "training.json").read_text())
        data["settings"] |= changes
        (path / "training.json").write_text(json.dumps(data))

    return apply


def enlarge(name, size):
    """A file with a hole: large without taking room on the disk."""
    return lambda path: os.truncate(path / name, size)


MALFORMED = {
    "no training.json": (remove("training.json"), "training.json: no such file. Is "),
    "truncated training.json": (write("training.json", '{"format": 1,'), "training.json: invalid JSON: "),
    "deep training.json": (
        write("training.json", '{"a":' * 99_999),
        "training.json: invalid JSON: maximum recursion",
    ),
    "large training.json": (
        enlarge("training.json", 10**9),
        "training.json: has 1,000,000,000 bytes, more than 1,048,576.",
    ),
    "no task": (
        change("training.json", task=None),
        "training.json: task: missing. Copy the run again, or train again.",
    ),
    "strange task": (
        change("training.json", task="dance"),
        "training.json: dance: no such task; the tasks are sentiment, language-model, translation.",
    ),
    "task of another type": (change("training.json", task=[]), "training.json: task: must be text, got []."),
    "unknown entry": (change("training.json", a=1), "training.json: a: no such key; the keys are format, task,"),
    "data of another type": (change("training.json", data="texts"), "data: must be a list of texts, got 'texts'."),
    "newer training.json": (
        change("training.json", format=2),
        "format must be 1, got 2. Did a newer version write it?",
    ),
    "unknown KEY": (change_settings(lenght=3), "training.json: lenght: no such key; did you mean length?"),
    "ill-typed KEY": (change_settings(length="3"), "training.json: length: must be an integer, got '3'"),
    "KEY out of bounds": (change_settings(length=0), "training.json: length: must be at least 1, got 0"),
    "no config.json": (remove("config.json"), "config.json: no such file."),
    "wrong config.json": (
        change("config.json", hidden_size="4"),
        "config.json: hidden_size must be an integer, got '4'.",
    ),
    "no vocabulary": (
        remove("vocabulary.json"),
        ("vocabulary.json: no such file. The model cannot read text without it."),
    ),
    "truncated vocabulary": (
        write("vocabulary.json", '{"format": 1, "tok'),
        "vocabulary.json: invalid JSON: Unterminated string",
    ),
    "deep vocabulary": (
        write("vocabulary.json", '{"a":' * 99_999),
        "vocabulary.json: invalid JSON: maximum recursion depth",
    ),
    "vocabulary not UTF-8": (write("vocabulary.json", b'"\xff'), "vocabulary.json: not UTF-8: byte 1 is 0xff."),
    "large vocabulary": (enlarge("vocabulary.json", 10**9), "vocabulary.json: has 1,000,000,000 bytes, more than"),
    "vocabulary without tokens": (change("vocabulary.json", tokens=None), "vocabulary.json: tokens: missing"),
    "tokens of another type": (change("vocabulary.json", tokens=[1]), "tokens: must be a list of texts"),
    "vocabulary of another run": (
        change("vocabulary.json", tokens=["a", "<unk>", "<eos>"]),
        "vocabulary.json: has 3 tokens, but config.json says vocabulary_size = 6: the files belong to different runs.",
    ),
    "no weights": (
        remove("model.safetensors"),
        ("A run has no model before its first validation. To continue the run: --resume."),
    ),
    "truncated weights": (enlarge("model.safetensors", 300), "model.safetensors: not a complete safetensors file: "),
    "wrong shapes": (
        change("config.json", hidden_size=5),
        "model.safetensors: embedding.weight has shape (6, 4), the model needs (6, 5).",
    ),
    "huge header": (write("model.safetensors", struct.pack("<Q", 2**62)), "8 bytes, but its header needs 4,611,686"),
    "no metrics": (remove("metrics.jsonl"), "metrics.jsonl: no such file. It is created with the first step of a run."),
    "large metrics": (enlarge("metrics.jsonl", 10**9), "metrics.jsonl: has 1,000,000,000 bytes, more than 33,554,432."),
}


@pytest.mark.parametrize(("change", "message"), MALFORMED.values(), ids=MALFORMED)
def test_guarantee_model_files_run_no_code_malformed_runs(run, change, message):
    change(run.path)
    assert message in refusal(run.path)


def test_guarantee_model_files_run_no_code_no_run(tmp_path):
    assert refusal(tmp_path / "none").endswith(
        "none: no such folder. `quasirnn train` creates runs, by default under runs/."
    )
    (tmp_path / "file").touch()
    assert refusal(tmp_path / "file").endswith("file: is a file. A run is a folder created by `quasirnn train`.")
    assert refusal(tmp_path) == f"training.json: no such file. Is {tmp_path} a folder that `quasirnn train` made?"


FILES = ("training.json", "config.json", "vocabulary.json", "model.safetensors", "metrics.jsonl")


@pytest.mark.parametrize("name", [name for name in FILES if name != "metrics.jsonl"])
def test_guarantee_model_files_run_no_code_truncated_runs(run, name):
    whole = (run.path / name).read_bytes()
    # The last byte of a JSON file is a line end, without which it is whole.
    for length in range(0, len(whole) - 2, 7):
        (run.path / name).write_bytes(whole[:length])
        assert refusal(run.path).startswith(f"{name}: ")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    run = make(tmp_path_factory.mktemp("runs") / "one")
    return run.path, {name: (run.path / name).read_bytes() for name in FILES}


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
def test_guarantee_model_files_run_no_code_garbage_in_runs(saved, name, data):
    path, whole = saved
    content = bytearray(whole[name])
    place = data.draw(st.integers(0, min(len(content), 600) - 1))
    content[place : place + data.draw(st.integers(0, 600))] = data.draw(st.binary(max_size=20))
    try:
        (path / name).write_bytes(content)
        try:
            read_all(path)
        except RunError:
            refusal(path)
    finally:
        (path / name).write_bytes(whole[name])


def test_a_resume_continues_with_what_was_saved():
    assert resumed(TRAINING, task="language-model") == TRAINING
    same = {"preset": "demo", "cell": "qrnn", "data": ["./texts"], "overrides": ["kernel_size=3,1", "epochs=9"]}
    assert resumed(TRAINING, task="language-model", **same).settings == SETTINGS.model_copy(update={"epochs": 9})


def test_all_contradictions_of_a_resume_are_told_together():
    with pytest.raises(SettingsError) as caught:
        resumed(
            TRAINING,
            task="sentiment",
            preset="paper",
            cell="lstm",
            data=["other", "texts"],
            overrides=["hidden_size=5", "epochs=-1", "lenght=2"],
        )
    assert caught.value.mistakes == (
        "task: the run was started with language-model, not sentiment",
        "--preset: the run was started with demo, not paper",
        "--cell: the run was started with qrnn, not lstm",
        "--data: the run was started with texts, not other texts",
        "hidden_size: the run was started with 4, not 5",
        "lenght: no such key; did you mean length?",
        "epochs: must be at least 0, got -1",
    )
    with pytest.raises(SettingsError, match="--data: the run was started with the built-in corpus, not texts"):
        resumed(dataclasses.replace(TRAINING, data=()), task="language-model", data=["texts"])
