"""What all tasks have in common: presets, building, batches, and losses that a plain computation confirms."""

import copy

import pytest
import torch
from torch.nn import functional as F

from quasirnn.errors import DataError, SettingsError
from quasirnn.tasks.settings import CELLS, from_json, to_json
from quasirnn.tasks.translation import ALPHA, BEAM, LONGER
from quasirnn.training.update import StepInfo
from tasks.tiny import LANGUAGE_MODEL, SENTIMENT, TASKS, TRANSLATION, learner
from tasks.tiny_sentiment import write_labelled
from tasks.tiny_translation import paired_rows, write_pairs

each_task = pytest.mark.parametrize("tiny", TASKS.values(), ids=TASKS)
each_cell = pytest.mark.parametrize("cell", CELLS)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folder with the tiny data of each task."""
    folder = tmp_path_factory.mktemp("data")
    return {name: tiny.write(folder / name) for name, tiny in TASKS.items()}


# Presets. Sections 3.1, 3.2 (with figure 4 for the batch and table 2 for dropout) and 3.3 of the paper.
NEVER = {"max_steps": None, "max_minutes": None, "weight_decay": 0.0, "lowercase": False, "max_vocabulary": None}
PAPER = {
    "sentiment": {
        "num_layers": 4,
        "hidden_size": 256,
        "dense": True,
        "kernel_size": 2,
        "zoneout": 0.0,
        "dropout": 0.3,
        "batch_size": 24,
        "optimizer": "rmsprop",
        "learning_rate": 1e-3,
        "schedule": "constant",
        "l2": 4e-6,
        "clip": None,
        "max_length": None,
    },
    "language-model": {
        "level": "word",
        "num_layers": 2,
        "hidden_size": 640,
        "kernel_size": 2,
        "pooling": "fo",
        "zoneout": 0.1,
        "dropout": 0.5,
        "output_dropout": 0.5,
        "gate_bias": False,
        "batch_size": 20,
        "length": 105,
        "optimizer": "sgd",
        "learning_rate": 1.0,
        "schedule": "hold-decay",
        "hold_epochs": 6,
        "decay": 0.95,
        "epochs": 72,
        "l2": 2e-4,
        "clip": 10.0,
        "patience": None,
    },
    "translation": {
        "source": "de",
        "target": "en",
        "num_layers": 4,
        "hidden_size": 320,
        "kernel_size": (6, 2, 2, 2),
        "pooling": "fo",
        "zoneout": 0.0,
        "dropout": 0.0,
        "batch_size": 16,
        "optimizer": "adam",
        "clip": 5.0,
        "learning_rate": 1e-3,
        "schedule": "constant",
        "l2": 0.0,
        "epochs": 10,
        "patience": None,
        "max_length": 300,
    },
}
# What only the LSTM has, or has otherwise.
PAPER_LSTM = {
    "sentiment": {"lstm_init": "uniform"},
    "language-model": {"gate_bias": True},
    "translation": {"dropout": 0.2},
}
# What the paper leaves open.
OURS = {
    "sentiment": ("pooling", "epochs", "patience", "min_count", "valid", "lowercase"),
    "language-model": ("output_dropout", "word_scale", "gate_init", "unigram_init", "loss_scale", "tied"),
    "translation": ("embedding_size", "min_count", "sample"),
}
OPTIMIZERS = {
    "sentiment": {"alpha": 0.9, "eps": 1e-8, "momentum": 0},
    "language-model": {"momentum": 0, "weight_decay": 0},
    "translation": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0},
}


@each_task
def test_the_papers_preset_is_the_paper(tiny, data):
    paper = {"cell": "qrnn", **NEVER, **PAPER[tiny.name]}
    settings = tiny.settings(preset="paper")
    assert {key: getattr(settings, key) for key in paper} == paper
    small = tiny.settings("hidden_size=8", "batch_size=4", preset="paper")
    prepared = tiny.task.prepare(small, [str(data[tiny.name])])
    for group in prepared.optimizer().param_groups:
        expected = {"lr": paper["learning_rate"], **OPTIMIZERS[tiny.name]}
        assert {key: group[key] for key in expected} == expected
    rates = [prepared.schedule()(StepInfo(0, epoch, steps_per_epoch=443, total_steps=72 * 443)) for epoch in range(72)]
    decays = settings.schedule == "hold-decay"
    assert rates == pytest.approx([1.0] * 6 + [0.95**n if decays else 1.0 for n in range(1, 67)])


def test_the_papers_beam_search():
    """Section 3.3, and the appendix."""
    assert (BEAM, ALPHA, LONGER) == (8, 0.6, 5)


@each_task
def test_the_papers_lstm_differs_where_an_lstm_must(tiny):
    qrnn, lstm = (dict(tiny.settings(preset="paper", cell=cell)) for cell in CELLS)
    without = dict.fromkeys(("kernel_size", "pooling", "zoneout"))
    expected = {"cell": "lstm", **without, **PAPER_LSTM[tiny.name]}
    assert {key: lstm[key] for key in qrnn if qrnn[key] != lstm[key]} == expected


@each_task
def test_what_the_papers_preset_sets_has_a_note_of_where_it_is_from(tiny):
    preset = tiny.task.presets["paper"]
    for key, info in type(preset.qrnn).model_fields.items():
        if info.json_schema_extra["group"] != "run" and getattr(preset.qrnn, key) != info.default:
            assert key in preset.notes, f"{key} has no note"
    for key, note in preset.notes.items():
        assert note.startswith(("paper", "ours", "that of --vectors")), f"{key}: {note}"
    for key in OURS[tiny.name]:
        assert preset.notes[key].startswith("ours"), key


@each_task
@each_cell
@pytest.mark.parametrize("preset", ["demo", "paper", "fast"])
def test_every_preset_can_be_built(tiny, data, preset, cell):
    settings = tiny.settings("hidden_size=8", "batch_size=4", "min_count=1", preset=preset, cell=cell)
    prepared = tiny.task.prepare(settings, [str(data[tiny.name])])
    config = prepared.model.config
    assert (config["cell"], config["hidden_size"], config["num_layers"]) == (cell, 8, settings.num_layers)
    assert config["vocabulary_size"] == len(prepared.vocabulary)
    for key in ("dropout", "zoneout", "pooling", "dense", "tied", "gate_bias", "output_dropout", "bidirectional"):
        if key in config and getattr(settings, key, None) is not None:
            assert config[key] == getattr(settings, key)
    default = 100 if tiny is SENTIMENT else 8
    assert prepared.model.embedding.embedding_dim == (settings.embedding_size or default)
    optimizer = prepared.optimizer()
    assert type(optimizer).__name__.lower() == settings.optimizer
    assert optimizer.param_groups[0]["lr"] == settings.learning_rate
    assert 0 < prepared.schedule()(StepInfo(step=0, epoch=0, steps_per_epoch=10, total_steps=100)) <= 1


@each_task
def test_the_same_seed_builds_the_same_weights(tiny, data):
    first, again, other = (tiny.prepare(data[tiny.name], f"seed={seed}").model.state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


def paper_corpus(name, folder):
    """Files named as the corpus of the paper's section; and a KEY that says that the files are others."""
    if name == "sentiment":
        return write_labelled(folder / "aclImdb", splits=["train", "test"]), ["train=test"]
    if name == "translation":
        write_pairs(folder / "iwslt", "train.tags.de-en", paired_rows("train"))
        return folder / "iwslt", ["source=de", "train=train.tags.de-en"]
    (folder / "ptb").mkdir()
    for split in ("train", "valid", "test"):
        (folder / "ptb" / f"ptb.{split}.txt").write_text("a b\n")
    return folder / "ptb", ["train=ptb.valid"]


@each_task
def test_default_presets(tiny, data, tmp_path):
    task, own = tiny.task, str(data[tiny.name])
    folder, keys = paper_corpus(tiny.name, tmp_path)
    assert task.default_preset([], []) == "demo"
    assert task.default_preset([own], []) == "fast"
    assert task.default_preset([str(folder)], ["epochs=3"]) == "paper"
    for key in keys:
        assert task.default_preset([str(folder)], [key]) == "fast"
    assert task.default_preset([str(folder), own], []) == "fast"


CONTRADICTIONS = {
    "sentiment": (
        ["weight_decay=0.1", "lstm_init=orthogonal"],
        "lstm_init: qrnn has none; it belongs to lstm",
        "weight_decay: rmsprop does not support it; use l2, or optimizer=adamw",
    ),
    "language-model": (
        ["weight_decay=0.1", "tied=true", "embedding_size=5"],
        "embedding_size: with tied=true it must be hidden_size=640, got 5",
        "weight_decay: sgd does not support it; use l2, or optimizer=adamw",
    ),
    "translation": (
        ["weight_decay=0.1", "target=de"],
        "weight_decay: adam does not support it; use l2, or optimizer=adamw",
        "target: must differ from source=de",
    ),
}


@each_task
def test_settings_that_contradict_one_another_are_told_together(tiny):
    keys, *expected = CONTRADICTIONS[tiny.name]
    with pytest.raises(SettingsError) as caught:
        tiny.settings(*keys, preset="paper")
    assert sorted(caught.value.mistakes) == sorted(expected)
    for keys, cell, message in (
        (["l2=0.1"], "qrnn", "l2: adamw does not support it; use weight_decay, or another optimizer"),
        (["kernel_size=6,2,2"], "lstm", "kernel_size: lstm has none; it belongs to qrnn"),
        (["num_layers=3", "kernel_size=6,2"], "qrnn", "kernel_size: 2 widths for num_layers=3; give one per layer"),
    ):
        with pytest.raises(SettingsError, match=message):
            tiny.settings(*keys, cell=cell)


FORMER = {
    "sentiment": ("lstm", {"lstm_init": ("lstm_start", "orthogonal", "orthogonal")}),
    "language-model": (
        "qrnn",
        {"gate_init": ("gates_start", "usual", "default"), "unigram_init": ("unigram_start", True, True)},
    ),
}


@pytest.mark.parametrize("name", FORMER)
def test_former_names_of_keys_are_still_read(name):
    """As KEY=VALUE, and in the training.json of an older run; nothing else is."""
    tiny, (cell, keys) = TASKS[name], FORMER[name]
    settings = tiny.settings(cell=cell)
    saved = to_json(settings)
    for key, (former, value, now) in keys.items():
        assert getattr(tiny.settings(f"{former}={value}", preset="paper", cell=cell), key) == now
        del saved[key]
        saved[former] = value
        assert getattr(from_json(type(settings), saved), key) == now
    with pytest.raises(SettingsError, match="no such key"):
        tiny.settings("gate_start=usual")
    if "gate_init" in keys:
        assert tiny.settings("gates_start=small").gate_init == "small"
        with pytest.raises(SettingsError, match="gate_init: must be one of default, unit, small, got 'strange'"):
            tiny.settings("gates_start=strange")


# The learner.


def plain_loss(tiny, model, part, max_length=None) -> tuple[float, int]:
    """Summed over a part, row by row and in double; and over how many items."""
    double = copy.deepcopy(model).double().eval()
    total, items = 0.0, 0
    with torch.no_grad():
        if tiny is LANGUAGE_MODEL:
            logits, _ = double(part[:-1, None])
            return F.cross_entropy(logits[:, 0], part[1:], reduction="sum").item(), len(part) - 1
        if tiny is SENTIMENT:
            for ids, label in zip(part.ids, part.labels, strict=True):
                cut = ids[:max_length, None]
                total += F.cross_entropy(double(cut, torch.tensor([len(cut)])), label[None]).item()
            return total, len(part.ids)
        for source, target in zip(part.sources, part.targets, strict=True):
            labels = torch.cat([target, torch.tensor([model.end])])
            inputs = torch.cat([torch.tensor([model.start]), target])
            lengths = torch.tensor([len(source)]), torch.tensor([len(labels)])
            logits = double(source[:, None], lengths[0], inputs[:, None], lengths[1])[:, 0]
            total, items = total + F.cross_entropy(logits, labels, reduction="sum").item(), items + len(labels)
    return total, items


def same(one, other) -> bool:
    return all(torch.equal(one[key], other[key]) for key in one)


@each_task
def test_batches_from_any_start_are_the_rest_of_the_epoch(tiny, data):
    learning = learner(tiny.prepare(data[tiny.name]))
    whole = list(learning.batches(2, 0))
    assert len(whole) == learning.steps_per_epoch > 4
    for start in (0, 1, len(whole) - 1, len(whole)):
        rest = list(learning.batches(2, start))
        assert all(same(one, other) for one, other in zip(rest, whole[start:], strict=True))
    # Running text has but one order.
    assert same(whole[0], next(learning.batches(3, 0))) == (tiny is LANGUAGE_MODEL)


@each_cell
@pytest.mark.parametrize("tiny", [SENTIMENT, TRANSLATION], ids=lambda tiny: tiny.name)
def test_the_losses_of_an_epoch_add_up_to_that_of_every_row_once(tiny, data, cell):
    prepared = tiny.prepare(data[tiny.name], cell=cell)
    learning, total, items = learner(prepared), 0.0, 0
    for batch in learning.batches(0, 0):
        loss, number, carried = learning.loss(prepared.model, batch, None)
        assert loss.requires_grad
        assert carried is None
        total, items = total + loss.item(), items + number
    expected, count = plain_loss(tiny, prepared.model, prepared.data.parts["train"])
    assert items == count
    assert total == pytest.approx(expected, rel=1e-5)


@each_cell
@each_task
def test_validation_is_the_plain_mean_in_double(tiny, data, cell):
    prepared = tiny.prepare(data[tiny.name], cell=cell)
    learning, ticks = learner(prepared), []
    figures = learning.validate(prepared.model, lambda done, of: ticks.append((done, of)))
    total, count = plain_loss(tiny, prepared.model, prepared.data.parts["valid"])
    assert figures["loss"] == pytest.approx(total / count, rel=1e-6)
    assert learning.best_by in figures
    assert learning.higher_is_better == (tiny is SENTIMENT)
    assert ticks == [(done, len(ticks)) for done in range(1, len(ticks) + 1)] != []


@pytest.mark.parametrize(("tiny", "rows"), [(SENTIMENT, 48), (TRANSLATION, 160)], ids=["sentiment", "translation"])
def test_more_processes_than_a_batch_has_rows(tiny, data, rows):
    with pytest.raises(DataError, match=rf"{rows} sequences in batches of 8 cannot be divided among 10 ranks"):
        learner(tiny.prepare(data[tiny.name]), rank=9, size=10)


@pytest.mark.parametrize("tiny", [SENTIMENT, TRANSLATION], ids=lambda tiny: tiny.name)
def test_the_test_part_is_left_alone(tiny, tmp_path):
    tiny.write(tmp_path)
    (file,) = tmp_path.glob("test.[td]*")
    file.write_bytes(b"\xff\0 nothing that could be read")
    assert set(tiny.prepare(tmp_path).corpus["splits"]) == {"train", "valid"}
