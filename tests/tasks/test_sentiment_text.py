"""A trained classifier on text: what it says of texts, word by word, in any number, and what it shows of itself."""

import copy
import json
import shutil
from collections import Counter

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import quasirnn
from quasirnn.errors import DataError, TextError
from quasirnn.tasks import sentiment as sentiment_text
from quasirnn.tasks.run_folder import RunError
from tasks.tiny import assert_reads_a_pool_ahead
from tasks.tiny_sentiment import THREE, TWO, labelled_rows, train_runs, train_tiny, write_labelled, write_rows

TEXTS = [text for _, text in labelled_rows("test", THREE)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return train_runs(tmp_path_factory.getbasetemp() / "sentiment")


@pytest.fixture(params=["qrnn", "lstm", "three"])
def sentiment(request, runs):
    return quasirnn.load(runs / request.param)


@pytest.fixture
def qrnn(runs):
    return quasirnn.load(str(runs / "qrnn"))


def plain(sentiment, text: str) -> torch.Tensor:
    """Probabilities of one text, alone and in double, (C,)."""
    ids = sentiment.vocabulary.encode(text)
    model = copy.deepcopy(sentiment.model).double()
    with torch.no_grad():
        return model(ids[:, None], torch.tensor([len(ids)]))[0].softmax(0)


def by_label(sentiment, probabilities: torch.Tensor) -> dict[str, float]:
    return pytest.approx(dict(zip(sentiment.classes, probabilities.tolist(), strict=True)), abs=1e-6)


def test_a_loaded_model_is_ready_for_use(sentiment):
    assert sentiment.task == "sentiment"
    assert not sentiment.model.training
    assert sentiment.classes == (THREE if sentiment.run.path.name == "three" else TWO)
    assert sentiment.model.config["vocabulary_size"] == len(sentiment.vocabulary)


def test_a_text_is_what_a_plain_computation_takes_it_for(sentiment):
    for text in ("the film is dull", "great", "It 's a zebra , and so<br />unknown"):
        found, expected = sentiment.classify(text), plain(sentiment, text)
        assert found.probabilities == by_label(sentiment, expected)
        assert found.label == sentiment.classes[expected.argmax()]
        assert found.probability == found.probabilities[found.label]
        assert sum(found.probabilities.values()) == pytest.approx(1.0, abs=1e-12)


def test_training_has_taught_something(sentiment):
    """Of the texts it was trained on, nearly all; of others, what the words say."""
    assert sentiment.evaluate("train").accuracy > 80
    assert sentiment.classify("great great").label == "good"
    assert sentiment.classify("dull dull").label == "bad"


def test_a_blank_text_is_nothing_to_read(sentiment):
    assert list(sentiment.classify_all(["", "dull", " \t<br />"]))[::2] == [None, None]
    with pytest.raises(DataError, match="classify: the text is blank"):
        sentiment.classify("<br /> ")
    assert sentiment.words("  ") == []
    assert list(sentiment.classify_all([])) == []
    assert list(sentiment.classify_all([""] * 3)) == [None] * 3


@pytest.mark.parametrize("batch_size", [1, 3, 64, 4096])
@pytest.mark.parametrize("pool", [1, 5, 512])
def test_many_texts_in_their_order_whatever_is_read_together(sentiment, monkeypatch, batch_size, pool):
    monkeypatch.setattr(sentiment_text, "POOL", pool)
    texts = [TEXTS[0], "", *TEXTS[1:7], " ", *TEXTS[7:]]
    found = list(sentiment.classify_all(iter(texts), batch_size))
    assert [each is None for each in found] == [not text.strip() for text in texts]
    for text, each in zip(texts, found, strict=True):
        if each is not None:
            alone = sentiment.classify(text)
            assert each.label == alone.label
            assert each.probabilities == pytest.approx(alone.probabilities, abs=1e-6)


def test_a_million_texts_are_read_no_more_than_a_pool_ahead(qrnn, monkeypatch):
    """Constant memory: texts are read as their results are taken."""
    monkeypatch.setattr(sentiment_text, "POOL", 32)
    assert_reads_a_pool_ahead(lambda texts: qrnn.classify_all(texts, batch_size=8), TEXTS, pool=32, count=100)


def test_batches_of_no_text(qrnn):
    with pytest.raises(ValueError, match="classify_all: batch_size must be at least 1, got 0"):
        next(qrnn.classify_all(TEXTS, 0))


@pytest.mark.parametrize("tokens", [1, 3, 7])
def test_a_text_that_no_batch_has_room_for_is_read_piece_by_piece(sentiment, monkeypatch, tokens):
    texts = ["dull", *TEXTS[:4], "great film"]
    expected = [plain(sentiment, text) for text in texts]
    monkeypatch.setattr(sentiment_text, "EVALUATION_TOKENS", tokens)
    sizes = []
    sentiment.model.rnn.register_forward_pre_hook(lambda rnn, inputs: sizes.append(inputs[0].shape[:2].numel()))
    found = list(sentiment.classify_all(texts))
    for each, probabilities in zip(found, expected, strict=True):
        assert each.probabilities == by_label(sentiment, probabilities)
    assert max(sizes) <= tokens


def test_every_word_is_what_its_beginning_is_taken_for(sentiment):
    text = "It 's the dull film, and great"
    found = sentiment.words(text)
    assert [read.word for read in found] == ["It", "'s", "the", "dull", "film", ",", "and", "great"]
    for number, read in enumerate(found, 1):
        beginning = " ".join(each.word for each in found[:number])
        assert read.so_far.probabilities == by_label(sentiment, plain(sentiment, beginning))
        assert read.so_far.label == sentiment.classify(beginning).label


@pytest.mark.parametrize("pieces", [["It's", "the dull", "", "film, and", " great"], ["It's the dull film, and great"]])
def test_a_reader_reads_on_where_it_was(sentiment, pieces):
    reader = sentiment.reader()
    found = [read for piece in pieces for read in reader.read(piece)]
    expected = sentiment.words("It's the dull film, and great")
    assert [read.word for read in found] == [read.word for read in expected]
    for ours, whole in zip(found, expected, strict=True):
        assert ours.so_far.probabilities == pytest.approx(whole.so_far.probabilities, abs=1e-6)


def test_two_readers_do_not_disturb_one_another(qrnn):
    one, other = qrnn.reader(), qrnn.reader()
    one.read("dull dull dull")
    assert other.read("great") == qrnn.words("great")


@pytest.mark.parametrize("layer", [None, 1, 2])
@pytest.mark.parametrize("what", ["c", "h", "z", "f", "o"])
def test_states_are_those_of_the_layer_while_it_reads(qrnn, layer, what):
    text = "It's a dull film"
    before = {name: tensor.clone() for name, tensor in qrnn.model.state_dict().items()}
    found = qrnn.states(text, layer, what, "bad")
    assert found.words == ["It", "'s", "a", "dull", "film"]
    gates = qrnn.model.inspect(qrnn.vocabulary.encode(text)[:, None])[f"l{(layer or 2) - 1}"]
    assert np.array_equal(found.values, gates[what][:, 0].numpy())
    assert found.values.shape == (5, 8)
    assert found.forget.tolist() == pytest.approx(gates["f"].mean((1, 2)).tolist())
    assert found.label == "bad"
    running = [read.so_far.probabilities["bad"] for read in qrnn.words(text)]
    assert found.probability.tolist() == pytest.approx(running)
    assert all(torch.equal(tensor, before[name]) for name, tensor in qrnn.model.state_dict().items())


def test_states_follow_the_last_class_if_not_told_otherwise(runs):
    three = quasirnn.load(runs / "three")
    found = three.states("dull")
    assert found.label == "good"
    assert found.probability[0] == pytest.approx(three.classify("dull").probabilities["good"])


@pytest.mark.parametrize(
    ("run", "arguments", "message"),
    [
        ("qrnn", (" ",), "the text is blank"),
        ("qrnn", ("dull", 3), "layer 3: the model has layers 1 to 2"),
        ("qrnn", ("dull", 0), "layer 0: the model has layers 1 to 2"),
        ("qrnn", ("dull", 1, "i"), "i: this layer has c, f, h, o, z"),
        ("qrnn", ("dull", 1, "c", "fair"), "label 'fair': the classes are bad, good"),
        ("lstm", ("dull",), "only a left-to-right QRNN can show its cells and gates"),
    ],
)
def test_states_that_cannot_be_shown(runs, run, arguments, message):
    with pytest.raises(DataError, match=message):
        quasirnn.load(runs / run).states(*arguments)


@pytest.mark.parametrize("split", ["valid", "test", "dev"])
def test_evaluate_is_a_plain_computation_on_the_split(sentiment, split):
    name = "valid" if split == "dev" else split
    result = sentiment.evaluate(split)
    rows = labelled_rows(name, sentiment.classes)
    probabilities = torch.stack([plain(sentiment, text) for _, text in rows])
    true = torch.tensor([sentiment.classes.index(label) for label, _ in rows])
    said = probabilities.argmax(1)
    assert (result.split, result.texts, result.classes) == (name, len(rows), sentiment.classes)
    assert (result.tokens, result.unknown) == (sum(len(text.split()) for _, text in rows), 0)
    assert result.loss == pytest.approx(F.nll_loss(probabilities.log(), true).item(), rel=1e-5)
    assert result.accuracy == pytest.approx(100 * (true == said).double().mean().item())
    pairs = Counter(zip(true.tolist(), said.tolist(), strict=True))
    classes = range(len(sentiment.classes))
    assert result.confusion == [[pairs[row, column] for column in classes] for row in classes]


def test_evaluate_on_other_texts(qrnn, tmp_path):
    write_rows(tmp_path / "mine.csv", [("good", "great film"), ("good", "zebra , great film"), ("good", "great film")])
    ticks = []
    result = qrnn.evaluate("mine", [str(tmp_path)], lambda done, of: ticks.append((done, of)))
    assert (result.split, result.texts, result.tokens, result.unknown, ticks) == ("mine", 3, 8, 1, [(1, 1)])
    assert result.notes == (
        "mine: 1 of 3 texts are duplicates",
        "mine: no text has the label bad",
        "mine: 1 of 8 tokens (12.5%) are not in the vocabulary and are read as <unk>",
    )
    assert result.confusion[0] == [0, 0]


def test_evaluate_on_other_texts_of_a_run_whose_files_were_named(tmp_path):
    """The names are those of the training's files; the other folder has none of them."""
    mine = tmp_path / "mine"
    for split in ("train", "valid"):
        write_rows(mine / f"my-{split}.tsv", labelled_rows(split))
    train_tiny(tmp_path / "run", mine, "train=my-train", "valid=my-valid", "epochs=1")
    sentiment = quasirnn.load(tmp_path / "run")
    assert sentiment.evaluate("valid").texts == 12
    assert sentiment.evaluate("test", [str(write_labelled(tmp_path / "other"))]).texts == 18


def test_splits_that_cannot_be_evaluated(qrnn, tmp_path):
    with pytest.raises(DataError, match="has no split 'nothing': neither train, valid or test nor the name of a file"):
        qrnn.evaluate("nothing")
    write_rows(tmp_path / "test.tsv", [("good", "great"), ("fair", "usual")])
    with pytest.raises(
        TextError, match=r"test\.tsv:2: the label 'fair' does not occur in training, which has bad, good"
    ):
        qrnn.evaluate("test", [str(tmp_path)])


def test_a_model_of_cut_texts_reads_no_further(runs, tmp_path):
    """The same for one text, many texts, word by word, and for a picture."""
    train_tiny(tmp_path / "cut", runs / "two-classes", "max_length=3", "epochs=1")
    cut = quasirnn.load(tmp_path / "cut")
    short, long = "the film is", "the film is great great great"
    assert cut.classify(long) == cut.classify(short)
    assert list(cut.classify_all([long, short])) == [cut.classify(short)] * 2
    assert [read.word for read in cut.words(long)] == short.split()
    assert cut.words(long)[-1].so_far.probability == pytest.approx(cut.classify(long).probability, abs=1e-6)
    reader = cut.reader()
    assert [read.word for piece in ("the film", "is great", "great") for read in reader.read(piece)] == short.split()
    assert cut.states(long).words == short.split()
    rows = [(label, " ".join(text.split()[:3])) for label, text in labelled_rows("test")]
    write_rows(tmp_path / "texts" / "short.tsv", rows)
    assert cut.evaluate("short", [str(tmp_path / "texts")]).confusion == cut.evaluate("test").confusion


def test_runs_that_cannot_be_loaded(runs, tmp_path):
    shutil.copytree(runs / "qrnn", tmp_path / "run")
    weights = quasirnn.load(tmp_path / "run").model
    with torch.no_grad():
        weights.output.weight[0, 0] = float("inf")
    weights.save_pretrained(tmp_path / "run")
    with pytest.raises(RunError, match=r"model\.safetensors: contains NaN or infinite values"):
        quasirnn.load(tmp_path / "run")
    training = json.loads((tmp_path / "run" / "training.json").read_text())
    (tmp_path / "run" / "training.json").write_text(json.dumps(training | {"task": "language-model"}))
    with pytest.raises(RunError, match=r"training\.json: "):
        quasirnn.load(tmp_path / "run")
