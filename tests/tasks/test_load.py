"""`quasirnn.load`: a run folder as an object that works on text."""

import itertools
import json
import math
import shutil

import pytest
import torch
from torch.nn import functional as F

import quasirnn
from quasirnn.errors import DataError
from quasirnn.models import Sampler
from quasirnn.tasks.run_folder import RunError
from tasks import tiny_language_model
from tasks.tiny_language_model import WORDS
from tasks.tiny_translation import paired_rows, train_runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of words, one of characters, and an LSTM's."""
    return tiny_language_model.train_runs(tmp_path_factory.getbasetemp() / "language-model")


@pytest.fixture(params=["word", "character", "lstm"])
def lm(request, runs):
    return quasirnn.load(runs / request.param)


@pytest.fixture
def words(runs):
    return quasirnn.load(str(runs / "word"))


def plain_bits(lm, text: str) -> float:
    """Bits of a text behind a line end, in double and at once."""
    ids = lm.vocabulary.encode("\n" + text)
    with torch.no_grad():
        logits, _ = lm.model.double()(ids[:-1, None])
    return F.cross_entropy(logits[:, 0], ids[1:], reduction="sum").item() / math.log(2)


def test_a_loaded_model_is_ready_for_use(lm):
    assert lm.task == "language-model"
    assert not lm.model.training
    assert lm.model.vocabulary_size == len(lm.vocabulary)


def test_generate_continues_the_prompt(lm):
    text = lm.generate("the cat", length=20, seed=1)
    assert text.startswith("the cat")
    assert text == "the cat" + "".join(lm.stream("the cat", 20, seed=1))
    if lm.vocabulary.kind == "word":
        assert set(text.split()) <= {*WORDS, "<unk>"}
    assert len(lm.vocabulary.encode(text)) == len(lm.vocabulary.encode("the cat")) + 20


def test_the_same_seed_gives_the_same_text(lm):
    first, again, other = (lm.generate("the", 40, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first != other
    assert lm.generate("the", 40, temperature=0) == lm.generate("the", 40, temperature=0, seed=9)
    assert lm.generate("the", 40, top_k=1, seed=1) == lm.generate("the", 40, temperature=0)


def test_a_prompt_of_nothing_is_the_start_of_a_line(lm):
    never = [number for number in [lm.vocabulary.special("unknown")] if number is not None]
    tokens = lm.model.generate(lm.vocabulary.encode("\n"), Sampler(seed=1, never=never))
    assert lm.generate(length=30, seed=1) == lm.vocabulary.decode(itertools.islice(tokens, 30))
    assert lm.generate("the cat", length=0) == "the cat"


def test_words_are_written_with_spaces_between(words):
    assert next(words.stream("the cat", seed=1)).startswith((" ", "\n"))
    for prompt in ("the cat ", "the cat\n", ""):
        assert not next(words.stream(prompt, seed=1)).startswith(" ")


def test_a_stream_without_length_has_no_end(words):
    pieces = words.stream("the", length=None, seed=1)
    assert len(list(itertools.islice(pieces, 500))) == 500


def test_wrong_ways_of_generating(words):
    for how, message in (({"length": -1}, "length must be 0 or more, got -1"), ({"top_k": 0}, "top_k must be")):
        with pytest.raises(ValueError, match=message):
            words.generate("the", **how)


def test_scores_are_those_of_a_plain_computation(lm):
    for text in ("the cat sat on a mat", "a"):
        score = lm.score(text)
        line = text + "\n" if lm.vocabulary.kind == "word" else text
        assert score.tokens == len(lm.vocabulary.encode(line))
        assert score.unknown == 0
        assert score.bits == pytest.approx(plain_bits(quasirnn.load(lm.run.path), line), rel=1e-5)
        assert score.bits_per_token == pytest.approx(score.bits / score.tokens)
        assert score.perplexity == pytest.approx(2**score.bits_per_token)


def test_a_text_that_was_learned_scores_better_than_one_that_was_not(words):
    assert words.score("the the the").perplexity < words.score("it mat it").perplexity


def test_strangers_are_counted_and_a_line_end_is_counted_once(words):
    score = words.score("the zebra sat on a yak")
    assert (score.tokens, score.unknown) == (7, 2)
    assert words.score("the cat\n") == words.score("the cat")
    # Nothing but a line end is still something to predict.
    assert words.score("").tokens == 1


def test_a_text_of_no_characters_has_no_score(runs):
    with pytest.raises(DataError, match="score: the text is empty"):
        quasirnn.load(runs / "character").score("")


@pytest.mark.parametrize("split", ["train", "valid", "test", "dev"])
def test_evaluate_is_a_plain_computation_on_the_split(lm, split):
    result = lm.evaluate(split)
    name = "valid" if split == "dev" else split
    text = (lm.run.path.parent / "texts" / f"{name}.txt").read_text()
    ids = lm.vocabulary.encode(text)
    with torch.no_grad():
        logits, _ = lm.model.double()(ids[:-1, None])
    exact = F.cross_entropy(logits[:, 0], ids[1:]).item()
    assert (result.corpus, result.split, result.tokens) == ("texts", name, len(ids) - 1)
    assert result.loss == pytest.approx(exact, rel=1e-6)
    assert result.perplexity == pytest.approx(math.exp(exact), rel=1e-5)
    assert result.bits_per_token == pytest.approx(exact / math.log(2), rel=1e-6)


def test_evaluate_on_other_texts(words, tmp_path):
    (tmp_path / "test.txt").write_text("the cat sat\nthe zebra sat\n")
    (tmp_path / "mine.txt").write_text("the dog ran\n")
    result = words.evaluate("test", [str(tmp_path)])
    assert (result.tokens, result.unknown) == (7, 1)
    assert any("not in the vocabulary" in note for note in result.notes)
    ticks = []
    result = words.evaluate("mine", [str(tmp_path)], lambda done, of: ticks.append((done, of)))
    assert (result.split, result.tokens, ticks) == ("mine", 3, [(1, 1)])


def test_splits_that_cannot_be_evaluated(words, tmp_path):
    with pytest.raises(DataError, match="has no split 'nothing': neither train, valid or test nor the name of a file"):
        words.evaluate("nothing")
    (tmp_path / "test.txt").write_text("\n")
    with pytest.raises(DataError, match="test: the text is too short; at least 2 tokens are needed"):
        words.evaluate("test", [str(tmp_path)])


def test_runs_that_cannot_be_loaded(runs, tmp_path):
    with pytest.raises(RunError, match="no such folder"):
        quasirnn.load(tmp_path / "none")
    shutil.copytree(runs / "word", tmp_path / "run")
    training = json.loads((tmp_path / "run" / "training.json").read_text())
    for task in ("sentiment", "translation"):
        (tmp_path / "run" / "training.json").write_text(json.dumps(training | {"task": task}))
        with pytest.raises(RunError, match=f"^{tmp_path / 'run'}"):
            quasirnn.load(tmp_path / "run")
    (tmp_path / "run" / "training.json").write_text(json.dumps(training | {"task": "dance"}))
    with pytest.raises(RunError, match=r"training\.json: dance: no such task"):
        quasirnn.load(tmp_path / "run")


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_a_translator_is_loaded_as_any_other_model(tmp_path_factory, monkeypatch, cell):
    folder = train_runs(tmp_path_factory.getbasetemp() / "translation")
    monkeypatch.chdir(folder)
    for path in (cell, folder / cell, str(folder / cell)):
        translator = quasirnn.load(path)
        assert translator.task == "translation"
        assert not translator.model.training
        assert translator.model.config["cell"] == cell
    sources = [source for source, _ in paired_rows("test")[:3]]
    alone = [translator.translate(source).text for source in sources]
    assert [best.text for (best,) in translator.translate_all(sources)] == alone
    assert [translator.n_best(source, 2)[0].text for source in sources] == alone
    assert translator.evaluate("valid", beam=1).pairs == 8


def test_weights_stay_where_they_are_put(tmp_path_factory):
    translator = quasirnn.load(train_runs(tmp_path_factory.getbasetemp() / "translation") / "qrnn", device="cpu")
    assert {parameter.device for parameter in translator.model.parameters()} == {translator.device}
    assert translator.device == torch.device("cpu")
