"""The language model as a task: streams and states, initialisation, and figures that a plain computation confirms."""

import itertools
import math

import pytest
import torch
from torch.nn import functional as F

from quasirnn import load
from quasirnn.errors import DataError, RunError, UserError
from quasirnn.models import LanguageModel
from quasirnn.models.initialisation import init_unit_gates
from quasirnn.tasks import language_model as task
from quasirnn.tasks.language_model import TASK, loss_per_token, perplexity, unknown_tokens
from quasirnn.tasks.settings import CELLS
from quasirnn.tasks.task import Dataset
from tasks.tiny import LANGUAGE_MODEL, learner
from tasks.tiny_language_model import train_tiny, write_texts

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


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts"))


def test_lines_as_documents(texts):
    """The loss of a text is the sum of its lines' own, each read from the end of the line before it."""
    model = LANGUAGE_MODEL.prepare(texts, documents=True).model.eval()
    end = model.document_start
    ids = torch.cat([torch.tensor([end]), torch.randint(VOCABULARY, (30,)), torch.tensor([end])])
    bounds = [*(ids == end).nonzero().flatten().tolist()]
    lines = [ids[begin : stop + 1] for begin, stop in itertools.pairwise(bounds)]
    total = sum(loss_per_token(model, line) * (len(line) - 1) for line in lines)
    assert loss_per_token(model, ids) * (len(ids) - 1) == pytest.approx(total, rel=1e-5)
    with pytest.raises(UserError, match="documents: only a QRNN can start a new document"):
        LANGUAGE_MODEL.prepare(texts, cell="lstm", documents=True)


@pytest.mark.parametrize("cell", CELLS)
def test_the_loss_is_the_sum_over_the_tokens_of_a_stream_that_goes_on(texts, cell):
    """Window by window, with what is carried between them: the same as each stream at once."""
    prepared = LANGUAGE_MODEL.prepare(texts, cell=cell)
    learning, model = learner(prepared), prepared.model
    init_unit_gates(model, 0.1)
    total, count, carried, batches = 0.0, 0, None, list(learning.batches(0, 0))
    for batch in batches:
        loss, tokens, carried = learning.loss(model, batch, carried)
        assert loss.requires_grad
        assert not any(part.requires_grad for part in carried)
        total, count = total + loss.item(), count + tokens
    x, y = (torch.cat([batch[key] for batch in batches]) for key in ("tokens", "targets"))
    assert count == y.numel()
    with torch.no_grad():
        whole = F.cross_entropy(model(x)[0].flatten(0, 1), y.flatten(), reduction="sum").item()
    assert total == pytest.approx(whole, rel=1e-5)


def test_validation_has_perplexity_and_bits(texts):
    prepared = LANGUAGE_MODEL.prepare(texts)
    figures = learner(prepared).validate(prepared.model, lambda done, of: None)
    assert figures["perplexity"] == pytest.approx(math.exp(figures["loss"]))
    assert figures["bits"] == pytest.approx(figures["loss"] / math.log(2))


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
    with pytest.raises(DataError, match="a text of 1 is too short; at least 2 are needed"):
        loss_per_token(model, ids[:1])


def test_perplexity_is_the_exponential_and_never_an_error():
    assert perplexity(0.0) == 1.0
    assert perplexity(math.log(78.3)) == pytest.approx(78.3)
    assert perplexity(1e5) == math.inf


def built(settings, size: int = VOCABULARY) -> LanguageModel:
    ids = torch.arange(size)
    return TASK.build(settings, Dataset(None, range(size), {"train": ids, "valid": ids}, {}))


@pytest.mark.parametrize(("cell", "parameters"), [("qrnn", 17_725_200), ("lstm", 19_373_840)])
def test_the_papers_models_have_the_papers_sizes(cell, parameters):
    """Table 2 has 18 and 20 million."""
    with torch.device("meta"):
        # Counting tokens needs numbers.
        model = built(LANGUAGE_MODEL.settings("unigram_init=no", preset="paper", cell=cell), 10_000)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_the_softmax_may_be_tied_and_its_bias_may_be_that_of_unigrams(texts):
    for keys in (["tied=no", "unigram_init=yes"], ["tied=yes"]):
        prepared = LANGUAGE_MODEL.prepare(texts, *keys)
        model = prepared.model
        assert (model.softmax.weight is model.embedding.weight) == prepared.settings.tied
        counts = torch.bincount(prepared.data.parts["train"], minlength=len(prepared.vocabulary)).clamp(min=1)
        as_frequent = torch.equal(model.softmax.bias.argsort(), counts.log().argsort())
        assert as_frequent == prepared.settings.unigram_init


@pytest.mark.parametrize(
    ("init", "largest"), [("default", (3 / 16) ** 0.5), ("small", 0.05), ("unit", (3 / 16 / 0.01) ** 0.5)]
)
def test_gates_are_initialised_as_the_settings_say(init, largest):
    """The bound of each uniform distribution, for two inputs of 8 with a deviation of 0.1."""
    weight = built(LANGUAGE_MODEL.settings("hidden_size=8", "dropout=0", f"gate_init={init}")).rnn.layers[0].weight
    assert 0.9 * largest < weight.abs().max() <= largest * (1 + 1e-6)


def test_a_validation_text_without_anything_to_predict(tmp_path):
    folder = write_texts(tmp_path / "texts")
    (folder / "valid.txt").write_text("\n")
    with pytest.raises(RunError, match="the validation text is too short; at least 2 tokens are needed"):
        LANGUAGE_MODEL.prepare(folder)


def test_more_streams_than_the_text_has_tokens(texts):
    with pytest.raises(DataError, match=r"cannot be split into 1000 streams; at least 1001 are needed"):
        learner(LANGUAGE_MODEL.prepare(texts, "batch_size=1000"))


def test_a_model_of_wikitext_reads_and_writes_ordinary_text(tmp_path):
    line = 'The cat \'s two @-@ part " song " ( 1 @,@ 000 copies ) , a hit .\n'
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(line * 40)
    lm = load(train_tiny(tmp_path / "run", tmp_path, "max_steps=2").run.path)
    written = "The cat 's two @-@ part song ."
    assert unknown_tokens("The cat's two-part song.", lm.vocabulary) == []
    assert lm.score("The cat's two-part song.") == lm.score(written)
    assert lm.generate("The cat's", 20, seed=1).startswith("The cat's")
    text = lm.generate("The cat's", 200, seed=1)
    assert not [each for each in ("@", " ,", " .", "( ", " 's") if each in text], text
