"""The language model as a task: its presets, its learner, and figures that a plain computation confirms."""

import dataclasses
import math

import pytest
import torch
from torch.nn import functional as F

from quasirnn.errors import DataError
from quasirnn.data.streams import Streams
from quasirnn.models import LanguageModel
from quasirnn.models.initialisation import init_unit_gates
from quasirnn.tasks import language_model as task
from quasirnn.tasks.language_model import (
    LANGUAGE_MODEL,
    LanguageModelLearner,
    PreparedLanguageModel,
    build,
    loss_per_token,
    perplexity,
)
from quasirnn.tasks.language_model import DEMO, FAST, PAPER, PRESETS
from quasirnn.tasks.run_folder import RunError
from quasirnn.tasks.settings import CELLS, SettingsError, apply_overrides
from quasirnn.training.schedule import StepInfo
from tasks.tiny_language_model import KEYS, write_texts

VOCABULARY = 11


def lively_model(**arguments) -> LanguageModel:
    """One whose guesses depend on what it has read."""
    torch.manual_seed(1)
    model = LanguageModel(VOCABULARY, **{"hidden_size": 8, **arguments})
    model.reset_parameters(word_scale=1.0)
    init_unit_gates(model, 1.0)
    torch.nn.init.normal_(model.softmax.weight, std=2.0)
    return model.eval()


def plain_loss(model: LanguageModel, ids: torch.Tensor) -> float:
    """The mean loss over all tokens but the first, in double and at once."""
    double = LanguageModel(**{k: v for k, v in model.config.items() if k not in ("format", "model")}).double().eval()
    double.load_state_dict(model.state_dict())
    with torch.no_grad():
        logits, _ = double(ids[:-1, None])
        return F.cross_entropy(logits[:, 0], ids[1:]).item()


def learner(model: LanguageModel, tokens: int = 500, valid: int = 300, **streams) -> LanguageModelLearner:
    ids = torch.randint(VOCABULARY, (tokens + valid,))
    streams = Streams(ids[:tokens], **{"batch_size": 4, "length": 8, **streams})
    return LanguageModelLearner(model, streams, ids[tokens:], run=None, device=torch.device("cpu"))


def test_batches_from_any_start_are_the_rest_of_the_epoch():
    learning = learner(lively_model())
    whole = list(learning.batches(0, 0))
    assert len(whole) == learning.steps_per_epoch == 16
    for start in (0, 1, 7, 15, 16):
        rest = list(learning.batches(3, start))
        assert len(rest) == learning.steps_per_epoch - start
        for (x, y), (expected_x, expected_y) in zip(rest, whole[start:], strict=True):
            assert torch.equal(x, expected_x)
            assert torch.equal(y, expected_y)


@pytest.mark.parametrize("cell", CELLS)
def test_the_loss_is_the_sum_over_the_tokens_of_a_stream_that_goes_on(cell):
    """Window by window, with what is carried between them: the same as each stream at once."""
    model = lively_model(cell=cell)
    learning = learner(model)
    total, count, carried = 0.0, 0, None
    for batch in learning.batches(0, 0):
        loss, tokens, carried = learning.loss(model, batch, carried)
        assert loss.requires_grad
        assert not any(part.requires_grad for part in carried)
        total, count = total + loss.item(), count + tokens
    x, y = learning.streams.inputs, learning.streams.targets
    assert count == y.numel()
    with torch.no_grad():
        whole = F.cross_entropy(model(x)[0].flatten(0, 1), y.flatten(), reduction="sum").item()
    assert total == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_validation_is_the_plain_mean_in_double(cell):
    model = lively_model(cell=cell)
    learning = learner(model)
    exact = plain_loss(model, learning.valid)
    figures = learning.validate(model, lambda done, of: None)
    assert figures["loss"] == pytest.approx(exact, rel=1e-6)
    assert figures["perplexity"] == pytest.approx(math.exp(exact), rel=1e-5)
    assert figures["bits"] == pytest.approx(exact / math.log(2), rel=1e-6)
    assert learning.best_by in figures
    assert not learning.higher_is_better


@pytest.mark.parametrize("window", [1, 7, 299, 300, 4096])
def test_the_loss_per_token_does_not_depend_on_the_window(monkeypatch, window):
    monkeypatch.setattr(task, "EVALUATION_TOKENS", window)
    model, ids = lively_model(), torch.randint(VOCABULARY, (300,))
    ticks = []
    loss = loss_per_token(model, ids, lambda done, of: ticks.append((done, of)))
    assert loss == pytest.approx(plain_loss(model, ids), rel=1e-6)
    windows = -(-299 // window)
    assert ticks == [(done, windows) for done in range(1, windows + 1)]


@pytest.mark.parametrize("cell", CELLS)
def test_many_streams_agree_with_one_to_a_fraction(cell):
    """Each token counts once; what differs is how far back the streams' first tokens can see."""
    model, ids = lively_model(cell=cell), torch.randint(VOCABULARY, (3000,))
    one = loss_per_token(model, ids)
    assert one == pytest.approx(plain_loss(model, ids), rel=1e-6)
    warm = loss_per_token(model, ids, streams=16, context=40)
    assert warm == pytest.approx(one, rel=1e-4)
    cold = loss_per_token(model, ids, streams=16)
    assert cold == pytest.approx(one, rel=1e-2)
    assert abs(cold - one) > 10 * abs(warm - one)


def test_a_short_text_is_read_as_one_stream():
    model, ids = lively_model(), torch.randint(VOCABULARY, (100,))
    assert loss_per_token(model, ids, streams=16, context=256) == loss_per_token(model, ids)
    assert loss_per_token(model, ids[:2], streams=16) == pytest.approx(plain_loss(model, ids[:2]), rel=1e-6)
    with pytest.raises(DataError, match="a text of 1 has nothing to predict; at least 2 are needed"):
        loss_per_token(model, ids[:1])


def test_perplexity_is_the_exponential_and_never_an_error():
    assert perplexity(0.0) == 1.0
    assert perplexity(math.log(78.3)) == pytest.approx(78.3)
    assert perplexity(1e5) == math.inf


def test_the_papers_preset_is_the_paper():
    """Section 3.2, figure 4 for the batch, and the caption of table 2 for dropout."""
    paper = {
        "cell": "qrnn",
        "level": "word",
        "num_layers": 2,
        "hidden_size": 640,
        "kernel_size": 2,
        "pooling": "fo",
        "zoneout": 0.1,
        "dropout": 0.5,
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
        "gate_bias": False,
        "max_steps": None,
        "max_minutes": None,
        "patience": None,
        "weight_decay": 0.0,
        "lowercase": False,
        "max_vocabulary": None,
    }
    settings = PAPER.for_cell("qrnn")
    assert {key: getattr(settings, key) for key in paper} == paper


def test_the_papers_lstm_differs_where_an_lstm_must():
    qrnn, lstm = (dataclasses.asdict(PAPER.for_cell(cell)) for cell in CELLS)
    different = {key: lstm[key] for key in qrnn if qrnn[key] != lstm[key]}
    assert different.pop("cell") == "lstm"
    assert different.pop("gate_bias") is True
    assert {key: different[key] for key in ("kernel_size", "pooling", "zoneout")} == dict.fromkeys(
        ("kernel_size", "pooling", "zoneout")
    )


@pytest.mark.parametrize(("cell", "parameters"), [("qrnn", 17_725_200), ("lstm", 19_373_840)])
def test_the_papers_models_have_the_papers_sizes(cell, parameters):
    """Table 2 has 18 and 20 million."""
    with torch.device("meta"):
        model = build(PAPER.for_cell(cell), 10_000, torch.ones(10_000))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_the_papers_learning_rate():
    prepared = object.__new__(PreparedLanguageModel)
    prepared.settings = PAPER.for_cell("qrnn")
    rate = prepared.schedule()
    rates = [rate(StepInfo(step=0, epoch=epoch, steps_per_epoch=443, total_steps=72 * 443)) for epoch in range(72)]
    assert rates[:6] == [1.0] * 6
    assert rates[6:] == pytest.approx([0.95**n for n in range(1, 67)])


def test_what_the_papers_preset_sets_has_a_note_of_where_it_is_from():
    usual = {field.name: (field.default, field.metadata["group"]) for field in dataclasses.fields(PAPER.qrnn)}
    for key, (default, group) in usual.items():
        if group in ("data", "model", "optimisation") and getattr(PAPER.qrnn, key) != default:
            assert key in PAPER.notes, f"{key} has no note"
    for key, note in PAPER.notes.items():
        assert note.startswith(("paper", "ours")), f"{key}: {note}"
    # What the paper leaves open and what decides is said to be ours.
    for key in ("output_dropout", "word_scale", "gate_init", "unigram_init", "loss_scale", "tied"):
        assert PAPER.notes[key].startswith("ours"), key


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts"))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_every_preset_can_be_built(texts, preset, cell):
    small = [key for key in KEYS if key.partition("=")[0] in ("hidden_size", "batch_size", "length")]
    settings = apply_overrides(preset.for_cell(cell), small)
    prepared = PreparedLanguageModel(settings, [str(texts)])
    model = prepared.model
    assert model.vocabulary_size == len(prepared.vocabulary)
    assert (model.config["cell"], model.config["hidden_size"]) == (cell, 8)
    assert (model.softmax.weight is model.embedding.weight) == settings.tied
    optimizer, rate = prepared.optimizer(), prepared.schedule()
    assert type(optimizer).__name__.lower() == settings.optimizer
    assert optimizer.param_groups[0]["lr"] == settings.learning_rate
    assert 0 < rate(StepInfo(step=0, epoch=0, steps_per_epoch=10, total_steps=100)) <= 1
    if settings.unigram_init:
        counts = torch.bincount(prepared.train, minlength=len(prepared.vocabulary))
        assert torch.equal(model.softmax.bias.argsort(), counts.clamp(min=1).log().argsort())


def test_the_same_seed_builds_the_same_weights():
    settings = DEMO.for_cell("qrnn")
    first, again, other = (
        build(dataclasses.replace(settings, seed=seed, hidden_size=8), VOCABULARY).state_dict() for seed in (3, 3, 4)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


@pytest.mark.parametrize(
    ("start", "largest"), [("usual", (3 / 16) ** 0.5), ("small", 0.05), ("unit", (3 / 16 / 0.01) ** 0.5)]
)
def test_gate_init_as_the_settings_say(start, largest):
    """The bound of each uniform distribution, for two inputs of 8 with a deviation of 0.1."""
    settings = apply_overrides(FAST.for_cell("qrnn"), ["hidden_size=8", "dropout=0", f"gate_init={start}"])
    weight = build(settings, VOCABULARY).rnn.layers[0].weight
    assert 0.9 * largest < weight.abs().max() <= largest * (1 + 1e-6)


def test_default_presets(texts, tmp_path):
    assert LANGUAGE_MODEL.default_preset([], []) == "demo"
    assert LANGUAGE_MODEL.default_preset([str(texts)], []) == "fast"
    for name in ("train", "valid", "test"):
        (tmp_path / f"ptb.{name}.txt").write_text("a b\n")
    assert LANGUAGE_MODEL.default_preset([str(tmp_path)], ["epochs=3"]) == "paper"
    assert LANGUAGE_MODEL.default_preset([str(tmp_path)], ["train=ptb.valid"]) == "fast"
    assert LANGUAGE_MODEL.default_preset([str(tmp_path), str(texts)], []) == "fast"


def test_settings_that_contradict_one_another_are_told_together():
    with pytest.raises(SettingsError) as caught:
        apply_overrides(PAPER.for_cell("qrnn"), ["weight_decay=0.1", "tied=true", "embedding_size=5"])
    assert caught.value.mistakes == (
        "embedding_size: with tied=true it is hidden_size=640, got 5",
        "weight_decay: sgd has none; give l2, or optimizer=adamw",
    )
    with pytest.raises(SettingsError, match="l2: adamw has its own; give weight_decay, or optimizer=sgd"):
        apply_overrides(FAST.for_cell("qrnn"), ["l2=0.1"])


def test_a_validation_text_without_anything_to_predict(texts, tmp_path):
    folder = write_texts(tmp_path / "texts")
    (folder / "valid.txt").write_text("\n")
    settings = apply_overrides(FAST.for_cell("qrnn"), list(KEYS))
    with pytest.raises(RunError, match="the validation text has nothing to predict; at least 2 tokens are needed"):
        PreparedLanguageModel(settings, [str(folder)])


def test_more_streams_than_the_text_has_tokens(texts):
    settings = apply_overrides(FAST.for_cell("qrnn"), ["hidden_size=8", "batch_size=1000"])
    prepared = PreparedLanguageModel(settings, [str(texts)])

    class One:
        rank, size, device = 0, 1, torch.device("cpu")

    with pytest.raises(DataError, match=r"cannot be cut into 1000 streams; at least 1001 are needed"):
        prepared.learner(One(), None)
