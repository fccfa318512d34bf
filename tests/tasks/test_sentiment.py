"""Sentiment as a task: its presets, its learner, word vectors, and figures that a plain computation confirms."""

import dataclasses
import json
from collections import Counter

import pytest
import torch
from torch.nn import functional as F

from quasirnn.errors import DataError
from quasirnn.data.labelled_corpus import LabelledSplit
from quasirnn.data.labelled_counts import count
from quasirnn.data.length_batches import LengthBatches
from quasirnn.models import SequenceClassifier
from quasirnn.tasks import sentiment as task
from quasirnn.tasks.sentiment import TASK as SENTIMENT, PreparedSentiment, SentimentLearner, build, judge
from quasirnn.tasks.sentiment import FAST, PAPER, PRESETS
from quasirnn.tasks.settings import CELLS, SettingsError, apply_overrides
from quasirnn.training.schedule import StepInfo
from tasks.tiny_sentiment import THREE, TWO, keys, labelled_rows, write_labelled, write_rows, write_vectors

WORDS, PADDING = 11, 0


def lively_model(classes: int = 3, **arguments) -> SequenceClassifier:
    """One whose guesses differ."""
    torch.manual_seed(1)
    model = SequenceClassifier(WORDS, classes, hidden_size=8, num_layers=2, embedding_size=4, **arguments)
    torch.nn.init.normal_(model.output.weight, std=4.0)
    return model.eval()


def labelled_split(texts: int, classes: int = 3) -> LabelledSplit:
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(1, 20, (texts,), generator=generator).tolist()
    ids = [torch.randint(1, WORDS, (length,), generator=generator) for length in lengths]
    return LabelledSplit(ids, torch.arange(texts) % classes, count([], []), unknown=0, sha256="", files=())


def plain_logits(model: SequenceClassifier, split: LabelledSplit, max_length: int | None = None) -> torch.Tensor:
    """Text by text, in double."""
    double = SequenceClassifier(**{k: v for k, v in model.config.items() if k not in ("format", "model")}).double()
    double.load_state_dict(model.state_dict())
    with torch.no_grad():
        cut = [ids[:max_length, None] for ids in split.ids]
        return torch.cat([double.eval()(ids, torch.tensor([len(ids)])) for ids in cut])


def learner(model: SequenceClassifier, **batches) -> SentimentLearner:
    train, valid = labelled_split(30), labelled_split(17)
    batches = LengthBatches(train.ids, train.labels, **{"batch_size": 4, "padding": PADDING, **batches})
    return SentimentLearner(model, batches, valid, run=None, device=torch.device("cpu"))


def prepare(data, *more: str, cell: str = "qrnn", **options: str) -> PreparedSentiment:
    return PreparedSentiment(apply_overrides(FAST.for_cell(cell), keys(*more), options), [str(data)])


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_labelled(tmp_path_factory.mktemp("texts"))


def test_batches_from_any_start_are_the_rest_of_the_epoch():
    learning = learner(lively_model())
    whole = list(learning.batches(2, 0))
    assert len(whole) == learning.steps_per_epoch == 8
    for start in (0, 1, 7, 8):
        rest = list(learning.batches(2, start))
        assert [batch.rows.tolist() for batch in rest] == [batch.rows.tolist() for batch in whole[start:]]


@pytest.mark.parametrize("cell", CELLS)
def test_the_losses_of_an_epoch_add_up_to_that_of_every_text_once(cell):
    model = lively_model(cell=cell)
    learning = learner(model)
    total, texts = 0.0, 0
    for batch in learning.batches(0, 0):
        loss, number, carried = learning.loss(model, batch, None)
        assert loss.requires_grad
        assert carried is None
        total, texts = total + loss.item(), texts + number
    split = labelled_split(30)
    assert texts == 30
    expected = F.cross_entropy(plain_logits(model, split), split.labels, reduction="sum").item()
    assert total == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("max_length", [None, 5])
def test_validation_is_the_plain_computation_in_double(cell, max_length):
    model = lively_model(cell=cell)
    learning = learner(model, max_length=max_length)
    logits = plain_logits(model, learning.valid, max_length)
    figures = learning.validate(model, lambda done, of: None)
    assert figures["loss"] == pytest.approx(F.cross_entropy(logits, learning.valid.labels).item(), rel=1e-6)
    right = (logits.argmax(1) == learning.valid.labels).double().mean().item()
    assert figures["accuracy"] == pytest.approx(100 * right)
    assert learning.best_by == "accuracy"
    assert learning.higher_is_better


@pytest.mark.parametrize(("tokens", "at_once"), [(1, 64), (40, 3), (16_384, 64)])
def test_a_judgement_does_not_depend_on_how_many_texts_are_read_at_once(monkeypatch, tokens, at_once):
    monkeypatch.setattr(task, "EVALUATION_TOKENS", tokens)
    monkeypatch.setattr(task, "EVALUATION_TEXTS", at_once)
    model, split, ticks = lively_model(), labelled_split(25), []
    found = judge(model, split, PADDING, tick=lambda done, of: ticks.append((done, of)))
    logits = plain_logits(model, split)
    expected = torch.zeros(3, 3, dtype=torch.int64)
    for true, said in zip(split.labels, logits.argmax(1), strict=True):
        expected[true, said] += 1
    assert torch.equal(found.confusion, expected)
    assert found.accuracy == pytest.approx(100 * expected.diag().sum().item() / 25)
    assert found.loss == pytest.approx(F.cross_entropy(logits, split.labels).item(), rel=1e-6)
    assert ticks == [(done, len(ticks)) for done in range(1, len(ticks) + 1)]
    assert len(ticks) == {1: 25, 40: len(ticks), 16_384: 1}[tokens]


def test_a_class_that_is_never_said_has_its_column_all_the_same():
    model, split = lively_model(), labelled_split(6)
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
    assert judge(model, split, PADDING).confusion.tolist() == [[0, 2, 0]] * 3


def test_the_papers_preset_is_the_paper():
    """Section 3.1; what it leaves open is said to be ours."""
    paper = {
        "cell": "qrnn",
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
        "weight_decay": 0.0,
        "max_length": None,
        "max_vocabulary": None,
        "lowercase": False,
        "max_steps": None,
        "max_minutes": None,
    }
    settings = PAPER.for_cell("qrnn")
    assert {key: getattr(settings, key) for key in paper} == paper
    prepared = object.__new__(PreparedSentiment)
    prepared.settings, prepared.model = settings, lively_model()
    (group,) = prepared.optimizer().param_groups
    assert (group["lr"], group["alpha"], group["eps"], group["momentum"]) == (1e-3, 0.9, 1e-8, 0)
    assert prepared.schedule()(StepInfo(step=9000, epoch=9, steps_per_epoch=938, total_steps=9380)) == 1.0


def test_what_the_papers_preset_sets_has_a_note_of_where_it_is_from():
    for field in dataclasses.fields(PAPER.qrnn):
        differs = getattr(PAPER.qrnn, field.name) != field.default
        if field.metadata["group"] in ("data", "model", "optimisation") and differs:
            assert field.name in PAPER.notes, f"{field.name} has no note"
    for key, note in PAPER.notes.items():
        assert note.startswith(("paper", "ours", "that of --vectors")), f"{key}: {note}"
    for key in ("pooling", "epochs", "patience", "min_count", "valid", "lowercase"):
        assert PAPER.notes[key].startswith("ours"), key


def test_the_papers_lstm_differs_where_an_lstm_must():
    qrnn, lstm = (dataclasses.asdict(PAPER.for_cell(cell)) for cell in CELLS)
    assert {key: lstm[key] for key in qrnn if qrnn[key] != lstm[key]} == {
        "cell": "lstm",
        "kernel_size": None,
        "pooling": None,
        "zoneout": None,
        "lstm_init": "uniform",
    }


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_every_preset_can_be_built(texts, preset, cell):
    settings = apply_overrides(preset.for_cell(cell), ["hidden_size=8"])
    prepared = PreparedSentiment(settings, [str(texts)])
    config = prepared.model.config
    assert config["vocabulary_size"] == len(prepared.vocabulary)
    assert (config["cell"], config["hidden_size"], config["num_classes"], config["dense"]) == (cell, 8, 2, True)
    assert config["num_layers"] == settings.num_layers
    assert config["embedding_size"] == (settings.embedding_size or 100)
    assert prepared.model.embedding.padding_idx == prepared.vocabulary.special("padding") == config["padding"]
    optimizer, rate = prepared.optimizer(), prepared.schedule()
    assert type(optimizer).__name__.lower() == settings.optimizer
    assert optimizer.param_groups[0]["lr"] == settings.learning_rate
    assert 0 < rate(StepInfo(step=0, epoch=0, steps_per_epoch=10, total_steps=100)) <= 1


def test_the_same_seed_builds_the_same_weights():
    settings = dataclasses.replace(FAST.for_cell("qrnn"), hidden_size=8)
    first, again, other = (
        build(dataclasses.replace(settings, seed=seed), WORDS, 2, PADDING).state_dict() for seed in (3, 3, 4)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


def test_an_lstm_inits_as_asked():
    uniform, orthogonal = (
        build(apply_overrides(FAST.for_cell("lstm"), keys(f"lstm_init={start}")), WORDS, 2, PADDING).rnn.layers[1]
        for start in ("uniform", "orthogonal")
    )
    assert uniform.bias_ih_l0.abs().max() <= 8**-0.5
    assert orthogonal.bias_ih_l0[8:16].tolist() == [1.0] * 8
    gate = orthogonal.weight_hh_l0[:8]
    torch.testing.assert_close(gate @ gate.T, torch.eye(8), rtol=0, atol=1e-5)


def test_default_presets(texts, tmp_path):
    assert SENTIMENT.default_preset([], []) == "demo"
    assert SENTIMENT.default_preset([str(texts)], []) == "fast"
    assert SENTIMENT.default_preset([str(texts / "train.tsv")], []) == "fast"
    imdb = write_labelled(tmp_path / "aclImdb", splits=["train", "test"])
    assert SENTIMENT.default_preset([str(imdb)], ["epochs=3"]) == "paper"
    assert SENTIMENT.default_preset([str(imdb)], ["train=test"]) == "fast"
    assert SENTIMENT.default_preset([str(imdb), str(texts)], []) == "fast"


def test_settings_that_contradict_one_another_are_told_together():
    with pytest.raises(SettingsError) as caught:
        apply_overrides(PAPER.for_cell("qrnn"), ["weight_decay=0.1", "lstm_init=orthogonal"])
    assert caught.value.mistakes == (
        "lstm_init: qrnn has none; it belongs to lstm",
        "weight_decay: rmsprop has none; give l2, or optimizer=adamw",
    )
    with pytest.raises(SettingsError, match="l2: adamw has its own; give weight_decay, or optimizer=rmsprop"):
        apply_overrides(FAST.for_cell("qrnn"), ["l2=0.1"])


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl"])
def test_every_kind_of_file_is_the_same_corpus(texts, tmp_path, suffix):
    prepared, expected = prepare(write_labelled(tmp_path, suffix)), prepare(texts)
    assert prepared.corpus["sha256"] == expected.corpus["sha256"]
    assert prepared.vocabulary == expected.vocabulary
    assert prepared.corpus["classes"] == list(TWO)
    assert {name: split["texts"] for name, split in prepared.corpus["splits"].items()} == {"train": 48, "valid": 12}


def test_three_classes(tmp_path):
    prepared = prepare(write_labelled(tmp_path, classes=THREE))
    assert prepared.corpus["classes"] == list(THREE)
    assert prepared.model.output.out_features == 3
    assert prepared.train.labels.tolist() == [0, 1, 2] * 16


def test_validation_that_is_held_out_has_the_shares_of_the_classes_and_follows_the_seed(tmp_path):
    """And never touches the test file, which is there."""
    rows = [(label, f"{text} {n}") for n in range(2) for label, text in labelled_rows("train", THREE)]
    rows += [("good", f"great {n}") for n in range(32)]
    write_rows(tmp_path / "train.tsv", rows)
    write_rows(tmp_path / "test.tsv", labelled_rows("test", THREE))
    prepared = prepare(tmp_path)
    by_class = {name: split["by_class"] for name, split in prepared.corpus["splits"].items()}
    assert by_class["valid"] == {"bad": 3, "fair": 3, "good": 6}
    assert sum(map(Counter, by_class.values()), Counter()) == {"bad": 32, "fair": 32, "good": 64}
    assert prepared.notes[0] == (
        "valid: no such file, so held out of train (12 of 128 texts, the same share of every class, seed 1)"
    )
    other = prepare(tmp_path, "seed=2")
    assert other.corpus["sha256"] != prepared.corpus["sha256"] == prepare(tmp_path).corpus["sha256"]


def test_the_test_part_is_left_alone(tmp_path):
    write_labelled(tmp_path)
    (tmp_path / "test.tsv").write_bytes(b"\xff\0 nothing that could be read")
    assert set(prepare(tmp_path).corpus["splits"]) == {"train", "valid"}


def test_without_vectors_one_line_says_so(texts):
    prepared = prepare(texts)
    assert prepared.notes == ["vectors: words start at random; --vectors FILE starts from GloVe's or others"]
    assert "vectors" not in prepared.corpus


@pytest.mark.parametrize("suffix", [".txt", ".npz"])
def test_words_start_at_the_vectors_of_the_file(texts, tmp_path, suffix):
    vectors = write_vectors(tmp_path / f"vectors{suffix}", size=5)
    prepared = prepare(texts, "embedding_size=none", vectors=str(tmp_path / f"vectors{suffix}"))
    weight = prepared.model.embedding.weight
    assert weight.shape == (len(prepared.vocabulary), 5)
    assert weight.requires_grad
    # Words keep their case and start from the vector of the word in lower case.
    assert "It" in prepared.vocabulary
    found = {token: vectors[token.lower()] for token in prepared.vocabulary.tokens if token.lower() in vectors}
    assert len(found) == 11
    for token, vector in found.items():
        (number,) = prepared.vocabulary.encode(token)
        assert weight[number].tolist() == pytest.approx(vector, rel=1e-6)
    assert torch.equal(weight[prepared.vocabulary.special("padding")], torch.zeros(5))
    recorded = prepared.corpus["vectors"]
    assert (recorded["dimension"], recorded["uncased"], len(recorded["sha256"])) == (5, True, 64)
    assert recorded["words"] == pytest.approx(11 / 12)
    music = sum(text.split().count("music") for _, text in labelled_rows("train"))
    running = 1 - music / prepared.corpus["splits"]["train"]["tokens"]
    assert recorded["running"] == pytest.approx(running)
    assert prepared.notes == [
        f"vectors: 11 of 12 words (91.7%), {running:.1%} of the running text, have one of 5 numbers in "
        f"{tmp_path / f'vectors{suffix}'}, looked up in lower case; the others start at random"
    ]
    assert json.loads(json.dumps(prepared.corpus)) == prepared.corpus


def test_everything_but_the_words_starts_as_without_vectors(texts, tmp_path):
    write_vectors(tmp_path / "vectors.txt")
    plain, started = prepare(texts).model, prepare(texts, vectors=str(tmp_path / "vectors.txt")).model
    different = [
        name for name, tensor in plain.state_dict().items() if not torch.equal(tensor, started.state_dict()[name])
    ]
    assert different == ["embedding.weight"]


def test_texts_are_read_whole_unless_a_length_is_given(texts):
    longest = max(len(text.split()) for _, text in labelled_rows("train"))
    whole, cut = prepare(texts), prepare(texts, "max_length=4")
    assert whole.corpus["splits"]["train"]["longest"] == longest

    class One:
        rank, size, device = 0, 1, torch.device("cpu")

    steps = [max(len(batch.tokens) for batch in each.learner(One(), None).batches(0, 0)) for each in (whole, cut)]
    assert steps == [longest, 4]
    long = sum(len(text.split()) > 4 for _, text in labelled_rows("train"))
    assert cut.notes[-1] == f"max_length: {long} of 48 training texts are cut"
    assert not any("max_length" in note for note in whole.notes)


def test_more_processes_than_a_batch_has_rows(texts):
    class Tenth:
        rank, size, device = 9, 10, torch.device("cpu")

    with pytest.raises(DataError, match=r"48 sequences in batches of 8 cannot be divided over 10 ranks"):
        prepare(texts).learner(Tenth(), None)
