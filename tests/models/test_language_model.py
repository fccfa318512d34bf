"""The language model: its sizes, its loss, streams cut anywhere, tied weights, and text without end."""

import itertools

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from quasirnn.models import LanguageModel, Sampler
from quasirnn.models.recurrent import FullPrecisionLSTM
from quasirnn.ops import backends

WORDS = 13
VARIANTS = {
    "qrnn": {},
    "widths": {"kernel_size": (3, 1, 4), "num_layers": 3},
    "f": {"pooling": "f", "kernel_size": 1},
    "ifo without biases": {"pooling": "ifo", "gate_bias": False},
    "regularised": {"zoneout": 0.3, "dropout": 0.4, "output_dropout": 0.2},
    "one layer": {"num_layers": 1, "dropout": 0.4},
    "tied": {"tied": True},
    "small words": {"embedding_size": 3},
    "documents": {"document_start": 0, "kernel_size": 3},
    "lstm": {"cell": "lstm", "dropout": 0.4},
    "locked": {"dropout": 0.4, "output_dropout": 0.2, "word_dropout": 0.2, "locked_dropout": True, "tied": True},
    "lstm, locked": {"cell": "lstm", "dropout": 0.4, "locked_dropout": True, "num_layers": 3},
}


def build(**arguments) -> LanguageModel:
    torch.manual_seed(1)
    return LanguageModel(WORDS, **{"hidden_size": 6, **arguments}).double().eval()


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def model(request):
    return build(**request.param)


def text(steps: int, streams: int = 1) -> torch.Tensor:
    return torch.randint(WORDS, (steps, streams), generator=torch.Generator().manual_seed(2))


def read_in_pieces(call, pieces: list[int], *tensors: torch.Tensor) -> torch.Tensor:
    """What `call` gives for each piece, with the state of the one before."""
    state, results = None, []
    for parts in zip(*(tensor.split(pieces) for tensor in tensors), strict=True):
        result, state = call(*parts, state)
        results.append(result)
    return torch.cat(results)


def test_documents_are_read_one_by_one():
    model = build(document_start=0, kernel_size=3)
    documents = [torch.tensor([0, 3, 4, 5]), torch.tensor([0, 7]), torch.tensor([0, 1, 2])]
    with torch.no_grad():
        together, _ = model(torch.cat(documents)[:, None])
        alone = torch.cat([model(document[:, None])[0] for document in documents])
    torch.testing.assert_close(together, alone)
    with pytest.raises(ValueError, match="an LSTM has no document_start"):
        build(cell="lstm", document_start=0)


@pytest.mark.parametrize("pieces", [[1] * 9, [4, 5], [1, 7, 1], [8, 1]], ids=str)
def test_guarantee_cut_anywhere_gives_the_same_logits_and_losses(model, pieces):
    tokens = text(10, 3)
    x, y = tokens[:-1], tokens[1:]
    with torch.no_grad():
        whole, _ = model(x)
        torch.testing.assert_close(read_in_pieces(model, pieces, x), whole, rtol=0, atol=1e-12)
        losses, _ = model.losses(x, y)
        torch.testing.assert_close(read_in_pieces(model.losses, pieces, x, y), losses, rtol=0, atol=1e-12)


def test_the_loss_is_the_cross_entropy_of_the_logits_and_has_its_gradients(model):
    tokens = text(8, 3)
    x, y = tokens[:-1], tokens[1:]
    gradients = []
    for loss in (
        model(x, targets=y)[0],
        F.cross_entropy(model(x)[0].flatten(0, 1), y.flatten(), reduction="sum"),
    ):
        gradients.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)
    each, _ = model.losses(x, y)
    assert each.shape == y.shape
    assert not each.requires_grad
    torch.testing.assert_close(each.sum(), gradients[0][0].detach(), rtol=1e-12, atol=1e-12)


def test_streams_side_by_side_are_streams_alone(model):
    tokens = text(7, 3)
    together, _ = model(tokens)
    for number, alone in enumerate(tokens.split(1, dim=1)):
        torch.testing.assert_close(model(alone)[0], together[:, number : number + 1], rtol=0, atol=1e-12)


def test_dropout_acts_in_training_alone_and_zoneout_at_random_there():
    tokens = text(20, 4)
    for arguments in ({"dropout": 0.5}, {"output_dropout": 0.5}, {"word_dropout": 0.5}, {"zoneout": 0.5}):
        model, plain = build(**arguments), build()
        # In eval zoneout is its expectation: nothing is drawn, but the outputs are others.
        assert torch.equal(model(tokens)[0], plain(tokens)[0]) == ("zoneout" not in arguments)
        assert torch.equal(model(tokens)[0], model(tokens)[0])
        model.train()
        first, second = model(tokens)[0], model(tokens)[0]
        assert not torch.allclose(first, second)


def test_every_dropout_has_its_place():
    """Dropped embeddings leave the softmax' input whole; output_dropout puts zeros into it."""
    tokens = text(30, 4)
    for where, share in (("dropout", 0.0), ("output_dropout", 0.5)):
        h, _ = build(**{where: 0.5}, num_layers=1).train().hidden(tokens)
        assert (h == 0).double().mean().item() == pytest.approx(share, abs=0.05)
    seen = []
    model = build(dropout=0.5).train()
    for layer in model.rnn.layers:
        layer.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    model(tokens)
    assert len(seen) == 2, "embeddings, and what stands between the layers"
    for x in seen:
        assert (x == 0).double().mean().item() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_locked_dropout_has_one_mask_for_all_steps_in_all_three_places(cell):
    model = build(cell=cell, dropout=0.5, output_dropout=0.5, locked_dropout=True, hidden_size=40, num_layers=3).train()
    seen = []
    for layer in model.rnn.layers:
        layer.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    h, state = model.hidden(text(30, 4))
    seen.append(h)
    assert len(seen) == 4
    masks = [x != 0 for x in seen]
    for mask in masks:
        assert torch.equal(mask, mask[:1].expand_as(mask)), "the same at every step"
        assert mask.double().mean().item() == pytest.approx(0.5, abs=0.15)
        assert not torch.equal(mask[:, 0], mask[:, 1]), "each stream has its own"
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(masks, 2))
    assert not torch.equal(model.hidden(text(30, 4), state)[0] != 0, masks[-1]), "and each call"


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_locked_dropout_keeps_the_expectation_and_changes_nothing_in_eval(cell):
    arguments = {"cell": cell, "num_layers": 1, "embedding_size": 6, "hidden_size": 6}
    model, plain = build(output_dropout=0.3, locked_dropout=True, **arguments), build(**arguments)
    assert torch.equal(model(text(9, 2))[0], plain(text(9, 2))[0])
    tokens = text(5, 2)
    expected, _ = model.hidden(tokens)
    model.train()
    # Each stream has a mask of its own.
    many, _ = model.hidden(tokens.repeat(1, 3000))
    mean = many.detach().unflatten(1, (3000, 2)).mean(1)
    # The standard error of a value is its size times sqrt(0.3 / 0.7 / 3000) = 0.012.
    torch.testing.assert_close(mean, expected.detach(), rtol=0.06, atol=1e-9)


def test_input_dropout_is_that_of_the_embeddings_alone():
    shares = []
    model = build(dropout=0.5, input_dropout=0.2).train()
    for layer in model.rnn.layers:
        layer.register_forward_pre_hook(lambda _, inputs: shares.append((inputs[0] == 0).double().mean().item()))
    model(text(200, 8))
    assert shares == pytest.approx([0.2, 0.5], abs=0.03)


def test_word_dropout_drops_a_word_wherever_it_occurs():
    model = build(word_dropout=0.4, num_layers=1).train()
    seen = []
    model.rnn.register_forward_pre_hook(lambda rnn, inputs: seen.append(inputs[0]))
    tokens, shares = text(50, 4), []
    for _ in range(200):
        model(tokens)
        x = seen.pop()
        dropped = [word for word in range(WORDS) if not x[tokens == word].any()]
        shares.append(len(dropped) / WORDS)
        expected = model.embedding(tokens) / 0.6
        expected[torch.isin(tokens, torch.tensor(dropped))] = 0.0
        torch.testing.assert_close(x, expected, rtol=1e-12, atol=0)
    assert sum(shares) / len(shares) == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_penalties_are_those_of_awd_lstm_per_token_in_training_alone(cell):
    model = build(cell=cell, output_dropout=0.5)
    tokens, targets = text(8, 3)[:-1], text(8, 3)[1:]
    assert torch.equal(model(tokens, targets=targets, penalties=(2.0, 1.0))[0], model(tokens, targets=targets)[0])
    h, _ = model.rnn(model.embedding(tokens))
    model.train()
    torch.manual_seed(5)
    loss, _ = model(tokens, targets=targets)
    torch.manual_seed(5)
    penalised, _ = model(tokens, targets=targets, penalties=(2.0, 3.0))
    torch.manual_seed(5)
    dropped = F.dropout(h, 0.5)
    penalty = 2.0 * dropped.pow(2).mean() + 3.0 * (h[1:] - h[:-1]).pow(2).mean()
    torch.testing.assert_close(penalised, loss + 21 * penalty, rtol=1e-12, atol=0)
    for ours, expected in zip(
        torch.autograd.grad(penalised - loss, list(model.rnn.parameters())),
        torch.autograd.grad(21 * penalty, list(model.rnn.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-12)
    one_step, _ = model(tokens[:1], targets=targets[:1], penalties=(0.0, 1.0))
    assert one_step.isfinite(), "there is no difference between steps to take the mean of"


@pytest.mark.parametrize(
    ("arguments", "parameters"),
    [
        # Word vectors and softmax: 2 * 10,000 * 640 + 10,000. A QRNN layer: 3 * 640 * 2 * 640, and 3 * 640 biases.
        ({"gate_bias": False}, 17_725_200),
        ({}, 17_729_040),
        ({"zoneout": 0.1, "dropout": 0.5}, 17_729_040),
        # An LSTM layer: 4 * 640 * (640 + 640), and two sets of 4 * 640 biases.
        ({"cell": "lstm"}, 19_373_840),
        ({"tied": True}, 17_729_040 - 6_400_000),
    ],
)
def test_parameters_of_the_papers_models(arguments, parameters):
    with torch.device("meta"):
        model = LanguageModel(10_000, hidden_size=640, num_layers=2, **arguments)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_an_lstm_has_the_sizes_and_the_dropout_of_the_qrnn():
    for arguments in ({"num_layers": 3, "dropout": 0.2, "embedding_size": 4}, {"num_layers": 1, "dropout": 0.2}):
        qrnn, lstm = build(**arguments).rnn, build(cell="lstm", **arguments).rnn
        assert isinstance(lstm, nn.LSTM)
        for name in ("input_size", "hidden_size", "num_layers", "dropout"):
            assert getattr(lstm, name) == getattr(qrnn, name)


@pytest.mark.parametrize("kernels", [True, False])
def test_an_lstms_cells_stay_in_float32_under_autocast(kernels, monkeypatch):
    """As those of a QRNN. Without kernels all of it does; with them its products are in bfloat16."""
    if kernels and backends.kernels is None:
        pytest.skip("there are no kernels")
    if not kernels:
        monkeypatch.setattr(backends, "kernels", None)
    lstm, x = FullPrecisionLSTM(3, 4, num_layers=2), torch.randn(5, 2, 3)
    exact, (last, _) = lstm(x.bfloat16().float())
    with torch.autocast("cpu", torch.bfloat16):
        output, (h, c) = lstm(x.bfloat16())
        assert output.dtype == (torch.bfloat16 if kernels else torch.float32)
        assert h.dtype == c.dtype == torch.float32
        more, _ = lstm(x.bfloat16(), (h, c))
    torch.testing.assert_close(output.float(), exact, rtol=0, atol=0.01 if kernels else 0)
    torch.testing.assert_close(h, last, rtol=0, atol=0.01 if kernels else 0)
    torch.testing.assert_close(more.float(), lstm(x, (h, c))[0], rtol=0, atol=0.01)


def test_tied_weights_are_one_parameter_saved_once(tmp_path):
    model = LanguageModel(WORDS, hidden_size=6, tied=True)
    assert model.softmax.weight is model.embedding.weight
    names = [name for name, _ in model.named_parameters()]
    assert "embedding.weight" in names
    assert "softmax.weight" not in names
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert set(saved) == set(names)
    again = LanguageModel.from_pretrained(tmp_path)
    assert again.softmax.weight is again.embedding.weight
    assert torch.equal(again.softmax.weight, model.embedding.weight)


@pytest.mark.parametrize("arguments", VARIANTS.values(), ids=VARIANTS)
def test_a_model_is_read_as_it_was_saved(tmp_path, arguments):
    model = LanguageModel(WORDS, hidden_size=6, **arguments).eval()
    model.save_pretrained(tmp_path)
    again = LanguageModel.from_pretrained(tmp_path)
    assert again.config == model.config
    assert not again.training
    assert torch.equal(again(text(7, 2))[0], model(text(7, 2))[0])


def test_the_first_guess_is_nearly_uniform():
    torch.manual_seed(1)
    model = LanguageModel(1000, hidden_size=32).eval()
    tokens = torch.randint(1000, (50, 4))
    loss = model(tokens[:-1], targets=tokens[1:])[0] / tokens[1:].numel()
    assert loss.item() == pytest.approx(torch.tensor(1000.0).log().item(), rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cell": "lstm", "zoneout": 0.1}, "an LSTM has no zoneout: leave it out, or use cell='qrnn'"),
        ({"cell": "lstm", "zoneout": 0.0}, "an LSTM has no zoneout"),
        ({"cell": "lstm", "kernel_size": 2}, "an LSTM has no kernel_size"),
        ({"cell": "lstm", "pooling": "fo"}, "an LSTM has no pooling"),
        ({"cell": "lstm", "kernel_size": 2, "zoneout": 0.1}, "an LSTM has no kernel_size and no zoneout"),
        ({"cell": "gru"}, "cell must be 'qrnn' or 'lstm', got 'gru'"),
        ({"tied": True, "embedding_size": 5}, "tied needs embedding_size = hidden_size, got 5 and 6. Leave"),
        ({"kernel_size": (2, 2, 2)}, "kernel_size"),
        ({"pooling": "of"}, "pooling"),
        ({"zoneout": 1.5}, "zoneout"),
        ({"dropout": 1.5}, "dropout"),
        ({"input_dropout": 1.5}, "LanguageModel: input_dropout is a probability"),
        ({"output_dropout": 2147483648}, "LanguageModel: output_dropout is a probability"),
        ({"dropout": -0.5}, "LanguageModel: dropout is a probability"),
        ({"word_dropout": 1.5}, "LanguageModel: word_dropout is a probability"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        build(**arguments)


def test_targets_of_another_shape():
    model = build()
    for call in (lambda x, y: model(x, targets=y), model.losses):
        with pytest.raises(
            ValueError, match=r"targets must have the shape of tokens, \(T, B\) = \(7, 2\), got \(2, 7\)."
        ):
            call(text(7, 2), text(2, 7))


def drawn(model: LanguageModel, prompt: torch.Tensor, length: int = 30, window: int = 4096, **how) -> list[int]:
    return list(itertools.islice(model.generate(prompt, Sampler(**how), window), length))


def test_generated_tokens_are_what_the_logits_of_the_whole_text_say(model):
    prompt = text(5)[:, 0]
    tokens = drawn(model, prompt, temperature=0)
    whole = torch.cat([prompt, torch.tensor(tokens)])
    likeliest = model(whole[:, None])[0].argmax(-1)[:, 0]
    assert tokens == likeliest[len(prompt) - 1 : -1].tolist()


def test_the_same_seed_generates_the_same_tokens(model):
    prompt = text(5)[:, 0]
    assert drawn(model, prompt, seed=3) == drawn(model, prompt, seed=3)
    assert drawn(model, prompt, seed=3) != drawn(model, prompt, seed=4)


@pytest.mark.parametrize("window", [1, 2, 5, 11, 12])
def test_a_prompt_read_in_windows_is_the_prompt_read_at_once(model, window):
    prompt = text(11)[:, 0]
    assert drawn(model, prompt, window=window, seed=3) == drawn(model, prompt, seed=3)


def test_generating_costs_the_same_for_every_token(model):
    """One step of one stream each, and a state that does not grow: whatever came before."""
    sizes = []
    model.rnn.register_forward_hook(
        lambda rnn, inputs, outputs: sizes.append((tuple(inputs[0].shape[:2]), [part.numel() for part in outputs[1]]))
    )
    drawn(model, text(50)[:, 0], length=40, window=20, seed=1)
    assert [size for size, _ in sizes[:3]] == [(20, 1), (20, 1), (10, 1)]
    assert {size for size, _ in sizes[3:]} == {(1, 1)}
    # The token that was drawn last has not been read yet.
    assert len(sizes) == 3 + 39
    assert all(state == sizes[0][1] for _, state in sizes)


def test_generating_keeps_no_graph_and_leaves_the_mode_of_the_caller_alone():
    model = build()
    seen = []
    model.rnn.register_forward_hook(lambda rnn, inputs, outputs: seen.append(outputs[0].requires_grad))
    for _ in itertools.islice(model.generate(text(3)[:, 0], Sampler(seed=1)), 3):
        assert torch.is_grad_enabled()
    assert not any(seen)


@pytest.mark.parametrize("prompt", [torch.zeros(0).long(), torch.zeros(3, 1).long()])
def test_a_prompt_needs_a_token(prompt):
    with pytest.raises(ValueError, match=r"the prompt must be \(T,\) with T at least 1, got "):
        next(build().generate(prompt, Sampler()))
