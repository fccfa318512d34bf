"""Runs that start from a trained one: what they keep of it, what is new, and that they need it only once."""

import hashlib
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from quasirnn.data.vocabulary import Vocabulary
from quasirnn.errors import RunError, SettingsError
from quasirnn.tasks import fine_tuning
from quasirnn.tasks.pipeline import quantize_run
from quasirnn.tasks.run_folder import Run
from quasirnn.tasks.settings import CELLS
from quasirnn.tasks.training_run import Request, configure, fit
from tasks.tiny import LANGUAGE_MODEL, SENTIMENT, TASKS, TRANSLATION
from tasks.tiny_sentiment import THREE, write_labelled

each_task = pytest.mark.parametrize("tiny", TASKS.values(), ids=TASKS)
# A word of each task's data, and another that takes its place in new data; of characters the new one is x.
OTHER_WORD = {"sentiment": ("film", "movie"), "language-model": ("cat", "cow"), "translation": ("sol", "xol")}
NEW_TOKEN = {"sentiment": "movie", "language-model": "cow", "translation": "x"}
TWO_STEPS = ("max_steps=2", "epochs=1")


def write_other(tiny, folder):
    """The tiny data of a task with one word instead of another."""
    word, other = OTHER_WORD[tiny.name]
    tiny.write(folder)
    for file in folder.iterdir():
        file.write_text(file.read_text().replace(word, other))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """For each task its data, other data, and a run on the first."""
    folder = tmp_path_factory.mktemp("runs")
    for name, tiny in TASKS.items():
        tiny.train(folder / f"{name}-qrnn", tiny.write(folder / name), "epochs=2")
        write_other(tiny, folder / f"{name}-other")
    return folder


def fine_tune(tiny, folder, out, *keys, data="other", source="qrnn", **options):
    start = {"init_from": str(folder / f"{tiny.name}-{source}")}
    return tiny.train(out, folder / f"{tiny.name}-{data}", *keys, options=start, **options).run


def asked(tiny, folder, *keys, source="qrnn", **request):
    """What `configure` makes of a request with no other KEYs than these."""
    options = {"init_from": str(folder / f"{tiny.name}-{source}")} | request.pop("options", {})
    whole = Request([str(folder / f"{tiny.name}-other")], overrides=keys, options=options, **request)
    return configure(tiny.task, whole)[0], whole


def checkpoint(run):
    return load_file(max(run.checkpoint.glob("step-*")) / "model.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("cell", CELLS)
@each_task
def test_every_weight_is_copied_and_new_tokens_are_the_mean(tiny, cell, folder, tmp_path):
    source = folder / f"{tiny.name}-{cell}"
    if cell == "lstm":
        tiny.train(source, folder / tiny.name, "epochs=1", cell="lstm")
    run = fine_tune(tiny, folder, tmp_path / "run", *TWO_STEPS, source=cell, cell=cell)
    old, new = (Vocabulary.read(path / "vocabulary.json") for path in (source, run.path))
    assert new.tokens[: len(old)] == old.tokens
    assert new.tokens[len(old) :] == (NEW_TOKEN[tiny.name],)
    before, initial = load_file(source / "model.safetensors"), load_file(run.initial)
    assert before.keys() == initial.keys()
    grown = set()
    for name, tensor in initial.items():
        rows = len(before[name])
        assert torch.equal(tensor[:rows], before[name]), name
        if len(tensor) > rows:
            grown.add(name)
            torch.testing.assert_close(tensor[rows:], before[name].mean(0, keepdim=True))
    assert grown == {name for name, tensor in before.items() if len(tensor) == len(old)}
    assert grown
    recorded = json.loads((run.path / "training.json").read_text())
    assert recorded["settings"]["init_from"] == str(source)
    assert recorded["corpus"]["init_from"] == {
        "sha256": hashlib.sha256((source / "model.safetensors").read_bytes()).hexdigest(),
        "new_tokens": 1,
        "replaced": [],
    }


@each_task
def test_it_starts_with_what_the_source_can_do(tiny, folder, tmp_path):
    """On the source's own data, and with steps that change nothing, validation is that of the source."""
    shutil.copytree(folder / tiny.name, tmp_path / "runs" / f"{tiny.name}-same")
    shutil.copytree(folder / f"{tiny.name}-qrnn", tmp_path / "runs" / f"{tiny.name}-qrnn")
    steps = ("learning_rate=1e-12", "max_steps=1")
    run = fine_tune(tiny, tmp_path / "runs", tmp_path / "run", *steps, data="same")
    source, fine_tuned = (
        [record["loss"] for record in Run(path).read_metrics() if record["event"] == "valid" and record["better"]][-1]
        for path in (folder / f"{tiny.name}-qrnn", run.path)
    )
    assert fine_tuned == pytest.approx(source, rel=1e-5)


def test_the_output_layer_stays_where_the_classes_are_the_same_and_is_new_where_not(folder, tmp_path):
    write_labelled(folder / "sentiment-three", classes=THREE)
    source = load_file(folder / "sentiment-qrnn/model.safetensors")
    same_classes = fine_tune(SENTIMENT, folder, tmp_path / "same", *TWO_STEPS)
    assert torch.equal(load_file(same_classes.initial)["output.weight"], source["output.weight"])
    three = fine_tune(SENTIMENT, folder, tmp_path / "three", *TWO_STEPS, data="three")
    initial = load_file(three.initial)
    assert len(initial["output.weight"]) == 3
    assert torch.equal(initial["rnn.layers.0.weight"], source["rnn.layers.0.weight"])
    assert json.loads(three.training.read_text())["corpus"]["init_from"]["replaced"] == ["output"]
    # As many classes under other names are others.
    write_labelled(folder / "sentiment-renamed")
    for file in (folder / "sentiment-renamed").iterdir():
        file.write_text(file.read_text().replace("good\t", "best\t"))
    renamed = fine_tune(SENTIMENT, folder, tmp_path / "renamed", *TWO_STEPS, data="renamed")
    assert not torch.equal(load_file(renamed.initial)["output.weight"], source["output.weight"])


@each_task
def test_an_int8_copy_can_be_fine_tuned(tiny, folder, tmp_path):
    small = folder / f"{tiny.name}-int8"
    quantize_run(folder / f"{tiny.name}-qrnn", small)
    run = fine_tune(tiny, folder, tmp_path / "run", *TWO_STEPS, source="int8")
    before, initial = load_file(folder / f"{tiny.name}-qrnn/model.safetensors"), load_file(run.initial)
    assert before.keys() == initial.keys()
    for name, weight in before.items():
        assert initial[name].dtype == torch.float32
        # Half a step of 127 to each side of a row.
        error = (initial[name][: len(weight)] - weight).abs().flatten(1 if weight.dim() > 1 else 0)
        bound = weight.abs().flatten(1).amax(1, keepdim=True) / 254 * 1.001 if weight.dim() > 1 else torch.tensor(0.0)
        assert (error <= bound).all(), name
    assert "quantized" not in run.read_config()


@pytest.mark.parametrize("when", ["before the first checkpoint", "after it"])
@each_task
def test_guarantee_exact_resume_without_the_source(tiny, when, folder, tmp_path):
    home = tmp_path / "runs"
    for part in ("qrnn", "other"):
        shutil.copytree(folder / f"{tiny.name}-{part}", home / f"{tiny.name}-{part}")
    keys = ("epochs=1", "schedule=constant", "checkpoint_every=3")
    whole = fine_tune(tiny, home, tmp_path / "whole", *keys)
    if when == "after it":
        fine_tune(tiny, home, tmp_path / "run", *keys, "max_steps=4")
    else:
        (tmp_path / "run").mkdir()
        for file in (whole.training, whole.config, whole.vocabulary, whole.environment, whole.initial):
            shutil.copy(file, tmp_path / "run")
    shutil.rmtree(home / f"{tiny.name}-qrnn")
    again = fine_tune(tiny, home, tmp_path / "run", *keys, "max_steps=none", resume=True)
    assert same(checkpoint(again), checkpoint(whole))
    assert json.loads(again.training.read_text()) == json.loads(whole.training.read_text()) | {
        "command": again.read_training(tiny.task.settings).command
    }


@each_task
def test_sizes_are_the_sources_and_the_rest_is_the_presets(tiny, folder):
    training, request = asked(tiny, folder)
    source = tiny.settings(*tiny.keys())
    assert training.preset == "fast"
    settings, _ = fit(tiny.task, training, request)
    assert settings.hidden_size == source.hidden_size
    assert settings.num_layers == 2
    assert settings.kernel_size == source.kernel_size
    from_scratch = Request(
        [str(folder / f"{tiny.name}-other")],
        "fast",
        overrides=[f"level={settings.level}"] if tiny is LANGUAGE_MODEL else [],
    )
    plain, _ = fit(tiny.task, configure(tiny.task, from_scratch)[0], from_scratch)
    assert settings.learning_rate == pytest.approx(plain.learning_rate / 3, rel=0.05)
    assert (settings.dropout, settings.batch_size, settings.optimizer) == (
        plain.dropout,
        plain.batch_size,
        plain.optimizer,
    )


def test_word_vectors_that_had_the_size_of_a_file_keep_it(tmp_path):
    from tasks.tiny_sentiment import write_vectors

    write_vectors(tmp_path / "vectors.txt", 8)
    data = SENTIMENT.write(tmp_path / "sentiment-other")
    options = {"vectors": str(tmp_path / "vectors.txt")}
    SENTIMENT.train(tmp_path / "sentiment-qrnn", data, "embedding_size=none", "max_steps=1", options=options)
    settings = asked(SENTIMENT, tmp_path)[0].settings
    assert (settings.embedding_size, settings.vectors) == (8, None)


def test_zoneout_and_languages_stay_unless_others_are_given(folder):
    assert asked(SENTIMENT, folder)[0].settings.zoneout == 0.1
    assert asked(SENTIMENT, folder, "zoneout=0.3")[0].settings.zoneout == 0.3
    assert asked(TRANSLATION, folder, "source=fr")[0].settings.source == "fr"
    settings, _ = fit(SENTIMENT.task, *asked(SENTIMENT, folder))
    assert settings.zoneout == 0.1


def test_a_learning_rate_that_is_given_is_taken_as_it_is(folder):
    training, request = asked(SENTIMENT, folder, "learning_rate=0.02")
    assert fit(SENTIMENT.task, training, request)[0].learning_rate == 0.02
    assert asked(SENTIMENT, folder, preset="paper")[0].settings.learning_rate == pytest.approx(1e-3 / 3, rel=0.02)


def test_new_tokens_are_the_most_frequent_ones_within_the_limit(folder, tmp_path, monkeypatch):
    data = tmp_path / "sentiment-other"
    SENTIMENT.write(data)
    with (data / "train.tsv").open("a") as file:
        file.write("good\tnew newer new newest newer new\n")
    shutil.copytree(folder / "sentiment-qrnn", tmp_path / "sentiment-qrnn")
    old = Vocabulary.read(tmp_path / "sentiment-qrnn/vocabulary.json")

    def added(name, *keys):
        run = fine_tune(SENTIMENT, tmp_path, tmp_path / name, *TWO_STEPS, *keys)
        return run.read_vocabulary().tokens[len(old) :]

    assert added("all") == ("new", "newer", "newest")
    assert added("frequent", "min_count=2") == ("new", "newer")
    assert added("one", f"max_vocabulary={len(old) + 1}") == ("new",)
    assert added("none", "max_vocabulary=5") == ()
    monkeypatch.setattr(fine_tuning, "NEW_TOKENS", 2)
    assert len(old) > 3
    assert added("more") == ("new", "newer", "newest")


def test_tokens_for_roles_are_those_of_the_source(folder):
    """A vocabulary from elsewhere may call the unknown token otherwise: the text's own name for it is not added."""
    train = LANGUAGE_MODEL.prepare(folder / "language-model").data.corpus.parts["train"]
    source = fine_tuning.open_source(LANGUAGE_MODEL.task, str(folder / "language-model-qrnn"))
    old = source.run.read_vocabulary()
    assert source.vocabulary(LANGUAGE_MODEL.task, source.training.settings, train, []) == old
    renamed = Vocabulary("word", ["xxunk", "xxbos", "cat"], {"unknown": "xxunk", "end": "xxbos"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(source.run), "read_vocabulary", lambda run: renamed)
        extended = source.vocabulary(LANGUAGE_MODEL.task, source.training.settings, train, [])
    assert not {"<unk>", "<eos>"} & set(extended.tokens)


@pytest.mark.parametrize(
    ("keys", "request_", "message"),
    [
        (["hidden_size=9"], {}, "hidden_size: .*sentiment-qrnn has 8, not 9; leave it out, or train without --from"),
        (["dense=false", "lowercase=true"], {}, "2 mistakes: .*dense: .*lowercase: "),
        ([], {"cell": "lstm"}, "--cell: .* has qrnn, not lstm"),
        (["match=parameters"], {}, "match: with --from the sizes are those of its model"),
        ([], {"options": {"vectors": "file"}}, "--vectors: the model of --from already has word vectors"),
        (["init_from=run"], {}, "init_from: not a KEY; use --from run"),
    ],
)
def test_what_contradicts_the_source_is_one_line(folder, keys, request_, message):
    with pytest.raises(SettingsError, match=message) as raised:
        asked(SENTIMENT, folder, *keys, **request_)
    assert "\n" not in str(raised.value)


def test_a_source_that_cannot_be_used_is_one_line(folder, tmp_path):
    with pytest.raises(RunError, match="no such folder"):
        asked(SENTIMENT, tmp_path)
    shutil.copytree(folder / "language-model-qrnn", tmp_path / "sentiment-qrnn")
    with pytest.raises(RunError, match=r"--from .*: is a language-model run, not a sentiment run"):
        asked(SENTIMENT, tmp_path)
    shutil.copytree(folder / "sentiment-qrnn", tmp_path / "sentiment-begun")
    (tmp_path / "sentiment-begun/model.safetensors").unlink()
    SENTIMENT.write(tmp_path / "sentiment-other")
    with pytest.raises(RunError, match="A run has no model before its first validation"):
        fine_tune(SENTIMENT, tmp_path, tmp_path / "run", source="begun")
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_keeps_its_source(folder, tmp_path):
    fine_tune(SENTIMENT, folder, tmp_path / "run", *TWO_STEPS)
    with pytest.raises(SettingsError, match=r"--from: the run was started with .*sentiment-qrnn, not .*sentiment-lstm"):
        fine_tune(SENTIMENT, folder, tmp_path / "run", *TWO_STEPS, source="lstm", resume=True)
    with pytest.raises(SettingsError, match="--from: the run was started with none, not "):
        fine_tune(SENTIMENT, folder, folder / "sentiment-qrnn", resume=True, data="other")
