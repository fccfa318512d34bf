"""The classifier: its figures against a plain computation, padding that cannot leak, reading word by word."""

import pytest
import torch
from torch.nn import functional as F

from models import naive_lstm
from nn import reference_stack
from quasirnn.models import SequenceClassifier
from quasirnn.models.sequence_classifier import Reading
from quasirnn.nn import QRNN

WORDS, PADDING = 13, 0
LENGTHS = torch.tensor([4, 9, 1, 6])
VARIANTS = {
    "qrnn": {},
    "widths, three classes": {"kernel_size": (4, 2, 1), "num_layers": 3, "num_classes": 3},
    "f, not dense": {"pooling": "f", "dense": False},
    "ifo": {"pooling": "ifo", "padding": None},
    "regularised": {"dropout": 0.4, "zoneout": 0.3},
    "one layer": {"num_layers": 1, "dropout": 0.4},
    "lstm": {"cell": "lstm", "dropout": 0.4},
    "lstm, not dense": {"cell": "lstm", "dense": False, "num_classes": 3},
    "three readouts": {"readout": "max-mean-last", "word_dropout": 0.3},
    "lstm, three readouts": {"cell": "lstm", "readout": "max-mean-last", "dense": False},
}
BIDIRECTIONAL = {
    "both ways": {"bidirectional": True, "kernel_size": 3},
    "both ways, three readouts": {"bidirectional": True, "readout": "max-mean-last", "dense": False},
    "lstm, both ways": {"cell": "lstm", "bidirectional": True, "dropout": 0.4},
    "lstm, both ways, three readouts": {
        "cell": "lstm",
        "bidirectional": True,
        "readout": "max-mean-last",
        "dense": False,
        "num_layers": 3,
    },
}


def build(**arguments) -> SequenceClassifier:
    """In double, with outputs that differ from one text to the next."""
    torch.manual_seed(1)
    sizes = {"num_classes": 2, "hidden_size": 6, "num_layers": 2, "embedding_size": 4, "padding": PADDING}
    model = SequenceClassifier(WORDS, **sizes | arguments).double().eval()
    torch.nn.init.normal_(model.output.weight, std=3.0)
    return model


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def model(request):
    return build(**request.param)


@pytest.fixture(params=(VARIANTS | BIDIRECTIONAL).values(), ids=VARIANTS | BIDIRECTIONAL)
def any_model(request):
    return build(**request.param)


def texts(steps: int = 9, rows: int = 4) -> torch.Tensor:
    """Tokens, none of them the padding."""
    return torch.randint(1, WORDS, (steps, rows), generator=torch.Generator().manual_seed(2))


def padded(fill: int | torch.Tensor = PADDING) -> torch.Tensor:
    return torch.where(torch.arange(9)[:, None] >= LENGTHS, fill, texts())


def plain_logits(model: SequenceClassifier, row: torch.Tensor) -> torch.Tensor:
    """One text without padding, step by step; (C,)."""
    x = model.embedding.weight[row][:, None]
    if isinstance(model.rnn, QRNN):
        h = reference_stack.run(model.rnn, dict(model.rnn.named_parameters()), x).output
    else:
        h, _ = naive_lstm.run(model.rnn, x)
    h = h[:, 0]
    features = h.mean(0)
    if model.readout == "max-mean-last":
        # Without padding the first H columns end at the last step, the backward direction's at the first.
        last = torch.cat([h[-1, :6], h[0, 6:]])
        features = torch.cat([h.max(0).values, features, last])
    return model.output.weight @ features + model.output.bias


def gradients(model: SequenceClassifier, loss: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def test_a_padded_batch_is_each_of_its_texts_alone(any_model):
    model = any_model
    labels = torch.arange(4) % model.config["num_classes"]
    loss = model(padded(), LENGTHS, labels)
    plain = torch.stack([plain_logits(model, texts()[:n, row]) for row, n in enumerate(LENGTHS)])
    expected = F.cross_entropy(plain, labels, reduction="sum")
    torch.testing.assert_close(model(padded(), LENGTHS), plain, rtol=0, atol=1e-12)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    for ours, theirs in zip(gradients(model, loss), gradients(model, expected), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


def test_without_lengths_every_row_is_whole(any_model):
    """With gradients, and without, where a QRNN runs all layers in one operator."""
    model, tokens = any_model, texts()
    lengths = torch.full((tokens.shape[1],), len(tokens))
    torch.testing.assert_close(model(tokens), model(tokens, lengths), rtol=0, atol=1e-12)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), model(tokens, lengths), rtol=0, atol=1e-12)


@pytest.mark.parametrize("fill", ["a word", "other words", "NaN"])
def test_guarantee_padding_cannot_leak(any_model, fill):
    """The same bits of the logits, the loss and all gradients, whatever is in the padding."""
    model = any_model
    labels = torch.tensor([0, 1, 1, 0])

    def computed(tokens: torch.Tensor) -> list[torch.Tensor]:
        loss = model(tokens, LENGTHS, labels)
        return [model(tokens, LENGTHS), loss, *gradients(model, loss)]

    expected = computed(padded())
    if fill == "NaN":
        with torch.no_grad():
            model.embedding.weight[PADDING] = float("nan")
    tokens = padded({"a word": 5, "other words": texts().flip(0), "NaN": PADDING}[fill])
    for ours, theirs in zip(computed(tokens), expected, strict=True):
        assert torch.equal(ours, theirs)


def test_other_texts_in_the_batch_change_nothing_but_the_rounding(any_model):
    model = any_model
    together = model(padded(), LENGTHS)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(model(padded()[:, order], LENGTHS[order]), together[order], rtol=0, atol=1e-12)
    torch.testing.assert_close(model(padded()[:4, [0, 2]], LENGTHS[[0, 2]]), together[[0, 2]], rtol=0, atol=1e-12)


@pytest.mark.parametrize("pieces", [[9], [1] * 9, [4, 5], [1, 7, 1]], ids=str)
def test_guarantee_cut_anywhere_reading_gives_what_forward_gives_for_every_beginning(model, pieces):
    """Which also shows that no word is seen before its turn."""
    reading, logits = None, []
    for piece in texts().split(pieces):
        some, reading = model.read(piece, reading)
        logits.append(some)
    logits = torch.cat(logits)
    for n in range(1, 10):
        expected = model(texts()[:n], torch.full((4,), n))
        torch.testing.assert_close(logits[n - 1], expected, rtol=0, atol=1e-12)
    assert not logits.requires_grad
    assert reading.count == 9


def test_reading_on_costs_the_same_after_any_number_of_words(model):
    def sizes(reading: Reading) -> list[int]:
        largest = [] if reading.largest is None else [reading.largest.numel()]
        return [reading.total.numel(), *(part.numel() for part in reading.state), *largest]

    _, first = model.read(texts()[:1])
    _, later = model.read(texts()[:1], model.read(texts(200))[1])
    assert sizes(first) == sizes(later)


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_a_bidirectional_model_cannot_be_read_word_by_word(cell):
    model = build(cell=cell, bidirectional=True)
    with pytest.raises(ValueError, match=r"a bidirectional model needs the whole sequence. Call model\("):
        model.read(texts())


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_both_directions_see_the_whole_text(cell):
    """Of a one-directional model the first output, which the maximum may take, depends on the first word alone."""
    model = build(cell=cell, bidirectional=True, num_layers=1)
    outputs = []
    model.rnn.register_forward_hook(lambda rnn, inputs, output: outputs.append(output[0]))
    changed = texts()
    changed[-1] = 1 + changed[-1] % (WORDS - 1)
    for tokens in (texts(), changed):
        model(tokens, torch.full((4,), 9))
    first = [output[0] for output in outputs]
    assert torch.equal(first[0][:, :6], first[1][:, :6])
    assert not torch.isclose(first[0][:, 6:], first[1][:, 6:], rtol=0, atol=1e-12).any(1).all()


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_word_dropout_acts_in_training_alone(cell):
    model, plain = build(cell=cell, word_dropout=0.5), build(cell=cell)
    assert torch.equal(model(padded(), LENGTHS), plain(padded(), LENGTHS))
    model.train()
    assert not torch.equal(model(padded(), LENGTHS), model(padded(), LENGTHS))


@pytest.mark.parametrize("arguments", [{}, {"cell": "lstm", "bidirectional": True}])
def test_the_adversarial_loss_is_that_of_vectors_moved_along_the_gradient(arguments):
    """By a fraction of the norm of each text's vectors; the padding is not moved; a loss in eval mode is as ever."""
    model, plain = build(adversarial=0.1, **arguments).train(), build(**arguments).train()
    labels = torch.tensor([0, 1, 1, 0])
    assert torch.equal(model.eval()(padded(), LENGTHS, labels), plain(padded(), LENGTHS, labels))
    vectors = plain.embedding(padded()).detach().requires_grad_()
    F.cross_entropy(plain._logits(vectors, padded(), LENGTHS), labels, reduction="sum").backward()
    moved = vectors.detach().clone()
    for row, length in enumerate(LENGTHS):
        gradient = vectors.grad[:, row]
        assert not gradient[length:].any()
        moved[:, row] += 0.1 * vectors[:length, row].norm() * gradient / gradient.norm()
    expected = F.cross_entropy(plain._logits(moved, padded(), LENGTHS), labels, reduction="sum")
    loss = model.train()(padded(), LENGTHS, labels)
    torch.testing.assert_close(loss, expected)
    assert loss > plain(padded(), LENGTHS, labels)
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
@pytest.mark.parametrize("training", [True, False])
def test_gates_and_cells_by_name_are_those_of_the_forward_pass(pooling, training):
    """c and h follow from the gates by the paper's equations 3 to 5; neither weights nor mode change."""
    model = build(pooling=pooling, dropout=0.4, zoneout=0.3)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = model(texts(), torch.full((4,), 9))
    model.train(training)
    state = torch.get_rng_state()
    inspected = model.inspect(texts())
    assert torch.equal(torch.get_rng_state(), state)
    assert list(inspected) == ["l0", "l1"]
    for gates in inspected.values():
        assert set(gates) == {*pooling, "z", "c", "h"}
        c = torch.zeros(4, 6, dtype=torch.float64)
        for t in range(9):
            step = {name: value[t] for name, value in gates.items()}
            c = step["f"] * c + step.get("i", 1 - step["f"]) * step["z"]
            torch.testing.assert_close(step["c"], c, rtol=0, atol=1e-12)
            torch.testing.assert_close(step["h"], step.get("o", 1.0) * c, rtol=0, atol=1e-12)
    logits = model.output(inspected["l1"]["h"].mean(0))
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-12)
    assert model.training == training
    assert all(module.training == training for module in model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


def test_an_lstm_has_no_gates_to_show():
    with pytest.raises(ValueError, match="only a QRNN can show its gates; this model has an LSTM"):
        build(cell="lstm").inspect(texts())


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_dropout_acts_in_training_alone_on_words_and_between_layers(cell):
    model, plain = build(cell=cell, dropout=0.5, num_layers=3), build(cell=cell, num_layers=3)
    whole = torch.full((8,), 30)
    assert torch.equal(model(texts(30, 8), whole), plain(texts(30, 8), whole))
    seen = []
    for layer in model.rnn.layers:
        layer.register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    model.train()
    assert not torch.equal(model(texts(30, 8), whole), model(texts(30, 8), whole))
    for x in seen:
        assert (x == 0).double().mean().item() == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_half_the_bits_are_close(cell):
    model, labels = build(cell=cell).float(), torch.tensor([0, 1, 1, 0])
    exact = model(padded(), LENGTHS)
    loss = model(padded(), LENGTHS, labels)
    with torch.autocast("cpu", torch.bfloat16):
        low = model(padded(), LENGTHS)
        low_loss = model(padded(), LENGTHS, labels)
        read, reading = model.read(texts())
    assert low_loss.dtype == torch.float32
    assert reading.total.dtype == torch.float32, "sums over many words"
    torch.testing.assert_close(low.float(), exact, rtol=0.02, atol=0.02)
    torch.testing.assert_close(read[-1, 1].float(), exact[1], rtol=0.02, atol=0.02)
    assert low_loss.item() == pytest.approx(loss.item(), rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "parameters"),
    [
        # Four layers of 256 that see 100, 356, 612 and 868 numbers: 3 * 256 * 2 * 1936 weights, 3 * 256 * 4 biases.
        ({}, 2_976_768),
        ({"kernel_size": [4, 2, 2, 2]}, 2_976_768 + 3 * 256 * 2 * 100),
        # 4 * 256 * (1936 + 4 * 256) weights and two sets of 4 * 256 * 4 biases.
        ({"cell": "lstm"}, 3_039_232),
        ({"dense": False}, 3 * 256 * (2 * 868 + 4)),
    ],
)
def test_parameters_of_the_papers_models(arguments, parameters):
    with torch.device("meta"):
        model = SequenceClassifier(10_000, 2, **arguments)
    assert sum(parameter.numel() for parameter in model.rnn.parameters()) == parameters
    rest = 10_000 * 100 + 256 * 2 + 2
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters + rest


@pytest.mark.parametrize("arguments", (VARIANTS | BIDIRECTIONAL).values(), ids=VARIANTS | BIDIRECTIONAL)
def test_a_model_is_read_as_it_was_saved(tmp_path, arguments):
    model = build(**arguments).float()
    model.save_pretrained(tmp_path)
    again = SequenceClassifier.from_pretrained(tmp_path)
    assert again.config == model.config
    assert not again.training
    assert torch.equal(again(padded(), LENGTHS), model(padded(), LENGTHS))


def test_the_vector_of_padding_is_zero_and_learns_nothing():
    model = build()
    assert torch.equal(model.embedding.weight[PADDING], torch.zeros(4, dtype=torch.float64))
    gradient, *_ = gradients(model, model(padded(), torch.full((4,), 9), torch.zeros(4).long()))
    assert torch.equal(gradient[PADDING], torch.zeros(4, dtype=torch.float64))
    assert gradient[1:].abs().sum() > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 1}, "num_classes must be at least 2, got 1"),
        ({"cell": "gru"}, "cell must be 'qrnn' or 'lstm', got 'gru'"),
        ({"cell": "lstm", "zoneout": 0.1}, "an LSTM has no zoneout: leave it out, or use cell='qrnn'"),
        ({"cell": "lstm", "kernel_size": 2}, "an LSTM has no kernel_size"),
        ({"kernel_size": (2, 2, 2)}, "kernel_size"),
        ({"pooling": "of"}, "pooling"),
        ({"readout": "max"}, "readout must be 'mean' or 'max-mean-last', got 'max'"),
        ({"word_dropout": -0.1}, "SequenceClassifier: word_dropout is a probability"),
        ({"adversarial": 1.5}, "SequenceClassifier: adversarial must be at least 0 and below 1"),
        ({"zoneout": 1.5}, "zoneout"),
        ({"padding": WORDS}, "padding must be one of the 13 tokens, 0 to 12, or None, got 13"),
        ({"padding": -1}, "padding must be one of the 13 tokens, 0 to 12, or None, got -1"),
        *[
            ({"cell": cell, **wrong}, message)
            for cell in ("qrnn", "lstm")
            for wrong, message in (
                ({"dropout": 1.5}, "dropout"),
                ({"dropout": -0.1, "num_layers": 1}, "dropout"),
                ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
                ({"hidden_size": 0}, "hidden_size must be"),
                ({"embedding_size": 0}, "embedding_size must be at least 1, got 0"),
            )
        ],
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        build(**arguments)


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([4, 9, 0, 6], "every length must be at least 1, got 0"),
        ([4, 9, -1, 6], "every length must be at least 1, got -1"),
        ([4, 10, 1, 6], "a length of 10 is more than the number of time steps, T = 9"),
        ([4, 9, 1], r"one entry for each of the B = 4 rows, got shape \(3,\)"),
    ],
)
def test_guarantee_never_crashes_on_wrong_lengths(cell, lengths, message):
    with pytest.raises(ValueError, match=message):
        build(cell=cell)(texts(), torch.tensor(lengths))
