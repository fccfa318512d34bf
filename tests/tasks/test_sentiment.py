"""Sentiment as a task: confusion, word vectors, classes, held-out parts, and the comparison of two classifiers."""

import json
from collections import Counter

import pytest
import torch
from torch.nn import functional as F

from quasirnn.models import SequenceClassifier
from quasirnn.tasks import sentiment as task
from quasirnn.tasks.sentiment import LabelledTexts, evaluate_texts, labels_in_order
from tasks.tiny import SENTIMENT, learner
from tasks.tiny_sentiment import THREE, TWO, labelled_rows, write_labelled, write_rows, write_vectors

prepare = SENTIMENT.prepare

WORDS, PADDING = 11, 0


def lively_model(classes: int = 3, **arguments) -> SequenceClassifier:
    """One whose guesses differ."""
    torch.manual_seed(1)
    model = SequenceClassifier(WORDS, classes, hidden_size=8, num_layers=2, embedding_size=4, **arguments)
    torch.nn.init.normal_(model.output.weight, std=4.0)
    return model.eval()


def labelled_texts(texts: int, classes: int = 3) -> LabelledTexts:
    generator = torch.Generator().manual_seed(2)
    lengths = torch.randint(1, 20, (texts,), generator=generator).tolist()
    ids = [torch.randint(1, WORDS, (length,), generator=generator) for length in lengths]
    return LabelledTexts(ids, torch.arange(texts) % classes, "")


def plain_logits(model: SequenceClassifier, split: LabelledTexts, max_length: int | None = None) -> torch.Tensor:
    """Text by text, in double."""
    double = SequenceClassifier(**{k: v for k, v in model.config.items() if k not in ("format", "model")}).double()
    double.load_state_dict(model.state_dict())
    with torch.no_grad():
        cut = [ids[:max_length, None] for ids in split.ids]
        return torch.cat([double.eval()(ids, torch.tensor([len(ids)])) for ids in cut])


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_labelled(tmp_path_factory.mktemp("texts"))


@pytest.mark.parametrize("max_length", [None, 3])
def test_validation_is_that_of_texts_one_by_one(texts, max_length):
    prepared = prepare(texts, *([] if max_length is None else [f"max_length={max_length}"]))
    torch.nn.init.normal_(prepared.model.output.weight, std=4.0)
    figures = learner(prepared).validate(prepared.model, lambda done, of: None)
    valid = prepared.data.parts["valid"]
    logits = plain_logits(prepared.model, valid, max_length)
    assert figures["loss"] == pytest.approx(F.cross_entropy(logits, valid.labels).item(), rel=1e-6)
    assert figures["accuracy"] == pytest.approx(100 * (logits.argmax(1) == valid.labels).double().mean().item())


@pytest.mark.parametrize(("tokens", "at_once"), [(1, 64), (40, 3), (16_384, 64)])
def test_an_evaluation_does_not_depend_on_how_many_texts_are_read_at_once(monkeypatch, tokens, at_once):
    monkeypatch.setattr(task, "EVALUATION_TOKENS", tokens)
    monkeypatch.setattr(task, "EVALUATION_TEXTS", at_once)
    model, split, ticks = lively_model(), labelled_texts(25), []
    result = evaluate_texts(model, split, PADDING, tick=lambda done, of: ticks.append((done, of)))
    logits = plain_logits(model, split)
    expected = torch.zeros(3, 3, dtype=torch.int64)
    for true, said in zip(split.labels, logits.argmax(1), strict=True):
        expected[true, said] += 1
    assert torch.equal(result.confusion, expected)
    assert torch.equal(result.right, split.labels == logits.argmax(1))
    assert result.accuracy == pytest.approx(100 * expected.diag().sum().item() / 25)
    assert result.loss == pytest.approx(F.cross_entropy(logits, split.labels).item(), rel=1e-6)
    assert ticks == [(done, len(ticks)) for done in range(1, len(ticks) + 1)]
    assert len(ticks) == {1: 25, 40: len(ticks), 16_384: 1}[tokens]


def test_a_class_that_is_never_said_has_its_column_all_the_same():
    model, split = lively_model(), labelled_texts(6)
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
    assert evaluate_texts(model, split, PADDING).confusion.tolist() == [[0, 2, 0]] * 3


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
    assert prepared.data.parts["train"].labels.tolist() == [0, 1, 2] * 16


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
        f"{tmp_path.name}: no file for valid, so held out of train (12 of 128 texts, the same share of every label, "
        "seed 1)"
    )
    other = prepare(tmp_path, "seed=2")
    assert other.corpus["sha256"] != prepared.corpus["sha256"] == prepare(tmp_path).corpus["sha256"]


def test_without_vectors_one_line_says_so(texts):
    prepared = prepare(texts)
    assert prepared.notes == ["vectors: words are initialised at random; --vectors FILE uses GloVe's or others"]
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
        f"vectors: 11 of 12 words (91.7%), {running:.1%} of the running text, have a vector of 5 dimensions in "
        f"{tmp_path / f'vectors{suffix}'}, looked up in lower case; the others are initialised at random"
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
    steps = [max(len(batch["tokens"]) for batch in learner(each).batches(0, 0)) for each in (whole, cut)]
    assert steps == [longest, 4]
    long = sum(len(text.split()) > 4 for _, text in labelled_rows("train"))
    assert cut.notes[-1] == f"max_length: {long} of 48 training texts are truncated"
    assert not any("max_length" in note for note in whole.notes)


def test_an_lstm_is_initialised_as_asked(texts):
    uniform, orthogonal = (
        prepare(texts, f"lstm_init={init}", cell="lstm").model.rnn.layers[1] for init in ("uniform", "orthogonal")
    )
    assert uniform.bias_ih_l0.abs().max() <= 8**-0.5
    assert orthogonal.bias_ih_l0[8:16].tolist() == [1.0] * 8
    gate = orthogonal.weight_hh_l0[:8]
    torch.testing.assert_close(gate @ gate.T, torch.eye(8), rtol=0, atol=1e-5)


def test_labels_are_in_the_order_of_numbers_or_of_code_points():
    assert labels_in_order(["10", "9", "9", "-1"]) == ("-1", "9", "10")
    assert labels_in_order(["10", "9", "nine"]) == ("10", "9", "nine")
    assert labels_in_order(["9" * 30, "8"]) == ("8", "9" * 30)
