"""The translator: the paper's equations, decoding step by step, padding that nothing sees, and files."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from models import translator_reference as reference
from quasirnn.models import Translator, embedding_projection
from quasirnn.models.attention import Attention
from quasirnn.models.embedding_projection import EmbeddedTokens
from quasirnn.models.translator_decoder import Decoding, Encoded
from quasirnn.models.translator_encoder import encoder_kernel_sizes, reverse_rows
from quasirnn.nn import QRNNLayer

VOCABULARY = 11
# Of sources and targets. The first source is shorter than the widest window, the last target has one step.
SOURCE_LENGTHS, TARGET_LENGTHS = (2, 9, 5, 8), (4, 7, 3, 1)
VARIANTS = {
    "qrnn": {},
    "paper's layers": {"num_layers": 4, "embedding_size": 3},
    "widths": {"kernel_size": (3, 1), "pooling": "ifo"},
    "f, one layer": {"pooling": "f", "num_layers": 1, "kernel_size": 4},
    "attention to cells": {"attend": "cells", "embedding_size": 3},
    "attention to cells, one layer": {"attend": "cells", "num_layers": 1, "pooling": "ifo"},
    "initial cells": {"init_decoder": True, "num_layers": 3},
    "cells for both": {"init_decoder": True, "attend": "cells", "pooling": "f"},
    "lstm": {"cell": "lstm"},
    "lstm, three layers": {"cell": "lstm", "num_layers": 3, "embedding_size": 3},
}
CELLS = {"qrnn": {}, "qrnn with cells": {"attend": "cells", "init_decoder": True}, "lstm": {"cell": "lstm"}}
EXACT = {"rtol": 1e-11, "atol": 1e-12}


def build(**arguments) -> Translator:
    torch.manual_seed(1)
    return Translator(VOCABULARY, **{"hidden_size": 5, "num_layers": 2, **arguments}).double().eval()


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def model(request) -> Translator:
    return build(**request.param)


@pytest.fixture(params=CELLS.values(), ids=CELLS)
def either(request) -> Translator:
    return build(**request.param)


class Batch:
    """Rows of random tokens of the given lengths, padded; labels are the tokens one step later."""

    def __init__(self, source_lengths=SOURCE_LENGTHS, target_lengths=TARGET_LENGTHS) -> None:
        generator = torch.Generator().manual_seed(2)

        def rows(lengths, extra=0):
            return [torch.randint(3, VOCABULARY, (length + extra,), generator=generator) for length in lengths]

        self.sources, self.targets = rows(source_lengths), rows(target_lengths, extra=1)
        self.source, self.source_lengths = pad_sequence(self.sources), torch.tensor(source_lengths)
        self.target_in = pad_sequence([row[:-1] for row in self.targets])
        self.labels = pad_sequence([row[1:] for row in self.targets])
        self.target_lengths = torch.tensor(target_lengths)

    def __iter__(self):
        return iter((self.source, self.source_lengths, self.target_in, self.target_lengths))

    def __len__(self) -> int:
        return len(self.sources)

    def row(self, number: int) -> "Batch":
        alone = Batch((1,), (1,))
        alone.source, alone.source_lengths = self.sources[number][:, None], self.source_lengths[number : number + 1]
        alone.target_in, alone.labels = self.targets[number][:-1, None], self.targets[number][1:, None]
        alone.target_lengths = self.target_lengths[number : number + 1]
        return alone

    def poisoned(self) -> "Batch":
        """Other tokens in all the padding."""
        other = Batch(self.source_lengths.tolist(), self.target_lengths.tolist())
        for name, lengths in (("source", self.source_lengths), ("target_in", self.target_lengths)):
            padding = torch.arange(len(getattr(self, name)))[:, None] >= lengths
            filling = torch.randint(3, VOCABULARY, padding.shape)
            setattr(other, name, torch.where(padding, filling, getattr(self, name)))
            if name == "target_in":
                other.labels = torch.where(padding, filling, self.labels)
        return other


def pooling_of(model: Translator) -> str | None:
    return None if model.config["cell"] == "lstm" else model.config["pooling"] or "fo"


def reference_options(model: Translator, *names: str) -> dict[str, object]:
    """The options of the reference: the pooling and, if not the default, those with the given names."""
    options = {name: model.config[name] for name in names if name in model.config}
    return {"pooling": pooling_of(model), **options}


def leaves(model: Translator) -> reference.Parameters:
    return {name: tensor.detach().clone().requires_grad_() for name, tensor in model.named_parameters()}


def loss_and_gradients(model: Translator, batch: Batch) -> list[Tensor]:
    loss = model(*batch, labels=batch.labels)
    return [loss, *torch.autograd.grad(loss, list(model.parameters()))]


def decoded(model: Translator, batch: Batch, encoded: Encoded | None = None) -> tuple[Tensor, Tensor]:
    """Log-probabilities and attention of the whole targets, one step after the other."""
    encoded = model.encode(batch.source, batch.source_lengths) if encoded is None else encoded
    state, steps = model.begin(encoded), []
    for tokens in batch.target_in:
        log_probabilities, state, attention = model.step(tokens, state, encoded)
        steps.append((log_probabilities, attention))
    return tuple(torch.stack(each) for each in zip(*steps, strict=True))


def test_logits_loss_and_gradients_are_those_of_the_papers_loops(model):
    batch, p = Batch(), leaves(model)
    logits = model(*batch)
    expected_loss = 0.0
    for number in range(len(batch)):
        source, target = batch.sources[number].tolist(), batch.targets[number]
        options = reference_options(model, "attend", "init_decoder")
        expected = reference.translate(p, source, target[:-1].tolist(), **options)
        torch.testing.assert_close(logits[: len(target) - 1, number], expected.logits, **EXACT)
        expected_loss = expected_loss + F.cross_entropy(expected.logits, target[1:], reduction="sum")
    loss, *gradients = loss_and_gradients(model, batch)
    torch.testing.assert_close(loss, expected_loss, **EXACT)
    expected_loss.backward()
    for (name, leaf), gradient in zip(p.items(), gradients, strict=True):
        torch.testing.assert_close(gradient, leaf.grad, **EXACT, msg=lambda text, name=name: f"{name}: {text}")


def test_encoding_is_that_of_the_papers_loops(model):
    batch, p = Batch(), leaves(model)
    encoded = model.encode(batch.source, batch.source_lengths)
    assert encoded.memory.shape == (9, 4, 5)
    for number, tokens in enumerate(batch.sources):
        expected = reference.encode(p, list(p["embedding.weight"][tokens]), **reference_options(model, "attend"))
        torch.testing.assert_close(encoded.memory[: len(tokens), number], torch.stack(expected.memory), **EXACT)
        for layer, end in enumerate(expected.ends):
            projected = p[f"decoder.from_encoder.{layer}.weight"] @ end
            if pooling_of(model) is None:
                torch.testing.assert_close(encoded.conditioning[0][layer, number], end, **EXACT)
                torch.testing.assert_close(encoded.conditioning[1][layer, number], projected, **EXACT)
            else:
                torch.testing.assert_close(encoded.conditioning[layer][number], projected, **EXACT)


def test_attention_is_equation_8():
    attention = Attention(5).double()
    p = {f"decoder.attention.{name}": tensor for name, tensor in attention.named_parameters()}
    h, c, lengths = torch.randn(6, 3, 5).double(), 3 * torch.randn(4, 3, 5).double(), torch.tensor([6, 1, 4])
    output, weights = attention(c, *attention.project(h, lengths), lengths)
    for row, length in enumerate(lengths.tolist()):
        for t in range(len(c)):
            expected, alpha = reference.attend(p, c[t, row], list(h[:length, row]))
            torch.testing.assert_close(output[t, row], expected, **EXACT)
            torch.testing.assert_close(weights[t, row, :length], alpha, **EXACT)
            assert torch.equal(weights[t, row, length:], torch.zeros(6 - length).double())


def test_attention_by_hand():
    """Logits are not scaled: c · h~ of log 3 and 0 are weights of 3/4 and 1/4."""
    attention = Attention(2).double()
    with torch.no_grad():
        attention.from_memory.weight.copy_(torch.eye(2))
        attention.from_state.weight.copy_(torch.tensor([[0.0, 10.0], [0.0, 0.0]]))
    lengths = torch.tensor([2])
    memory = attention.project(torch.tensor([[[1.0, 0.0]], [[0.0, 4.0]]]).double(), lengths)
    output, weights = attention(torch.tensor([[[3.0, 0.0]]]).double().log().clamp(min=0), *memory, lengths)
    torch.testing.assert_close(weights, torch.tensor([[[0.75, 0.25]]]).double())
    torch.testing.assert_close(output, torch.tensor([[[0.75, 1.0]]]).double())


def test_attention_in_bfloat16_has_its_logits_and_weights_in_float32():
    """Against float64 on the same rounded numbers: the weights to float32, what is made of them to bfloat16."""
    attention, lengths = Attention(64).double(), torch.tensor([40, 9])
    with torch.no_grad():
        for weight in attention.parameters():
            weight.copy_(weight.bfloat16())
    h, c = (3 * torch.randn(size, 2, 64).bfloat16() for size in (40, 12))

    def run(attention, *inputs):
        inputs = [each.clone().requires_grad_() for each in inputs]
        output, weights = attention(inputs[1], *attention.project(inputs[0], lengths), lengths)
        return [output, weights, *torch.autograd.grad(output.square().sum(), inputs)]

    output, weights, *grads = run(attention, h.double(), c.double())
    found = run(copy.deepcopy(attention).bfloat16(), h, c)
    assert found[1].dtype == torch.float32
    torch.testing.assert_close(found[1].double(), weights, rtol=1e-4, atol=1e-6)
    for name, each, exact in zip(("output", "h", "c"), [found[0], *found[2:]], [output, *grads], strict=True):
        assert (each.double() - exact).norm() < 0.01 * exact.norm(), name


def test_every_gate_of_every_decoder_layer_sees_the_end_of_its_encoder_layer():
    """Eq. 7: without V the source reaches the logits through the attention alone, with any one of them it does more."""
    model, batch = build(num_layers=3), Batch()
    with torch.no_grad():
        model.decoder.attention.from_memory.weight.zero_()
        kept = [project.weight.clone() for project in model.decoder.from_encoder]
        for project in model.decoder.from_encoder:
            project.weight.zero_()
        other = Batch()
        other.source = batch.source.flip(1)
        other.source_lengths = batch.source_lengths.flip(0)
        assert torch.equal(model(*batch), model(*other))
        for project, weight in zip(model.decoder.from_encoder, kept, strict=True):
            for gate in range(3):
                rows = slice(5 * gate, 5 * gate + 5)
                project.weight[rows] = weight[rows]
                assert not torch.allclose(model(*batch)[0], model(*other)[0])
                project.weight.zero_()


def test_steps_are_what_the_whole_target_gives(model):
    batch = Batch()
    log_probabilities, attention = decoded(model, batch)
    expected = model(*batch).log_softmax(-1)
    p = leaves(model)
    for number, length in enumerate(TARGET_LENGTHS):
        torch.testing.assert_close(log_probabilities[:length, number], expected[:length, number], **EXACT)
        source, target = batch.sources[number].tolist(), batch.targets[number][:-1].tolist()
        weights = reference.translate(p, source, target, **reference_options(model, "attend", "init_decoder")).attention
        torch.testing.assert_close(attention[:length, number, : len(source)], weights, **EXACT)
    assert attention.shape == (7, 4, 9)


def test_a_step_costs_the_same_whatever_came_before(either):
    """A step reads one token of each target, and neither the state nor the encoded source grow or are made again."""
    batch = Batch()
    inputs = []
    layers = either.decoder.layers if hasattr(either.decoder, "layers") else [either.decoder.rnn]
    projections = [*either.decoder.from_encoder, either.decoder.attention.from_memory]
    encoded = either.encode(batch.source, batch.source_lengths)
    for module in layers:
        module.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0].shape[:2]))
    for module in projections:
        module.register_forward_pre_hook(lambda module, arguments: pytest.fail("a source is projected once"))
    state, sizes = either.begin(encoded), []
    for tokens in batch.target_in:
        _, state, _ = either.step(tokens, state, encoded)
        sizes.append([tensor.shape for tensor in state.tensors])
    assert set(inputs) == {(1, 4)}
    assert all(each == sizes[0] for each in sizes)


def test_targets_of_one_source_may_share_it(either):
    batch, n = Batch(), 3
    encoded = either.encode(batch.source, batch.source_lengths)
    shared = either.begin(encoded).repeat(n)
    repeated = either.begin(encoded.repeat(n))
    assert shared.size == repeated.size == 4 * n
    for _ in range(4):
        tokens = torch.randint(3, VOCABULARY, (4 * n,))
        first, shared, first_attention = either.step(tokens, shared, encoded)
        second, repeated, second_attention = either.step(tokens, repeated, encoded.repeat(n))
        torch.testing.assert_close(first, second, **EXACT)
        torch.testing.assert_close(first_attention, second_attention, **EXACT)


def test_rows_of_states_and_of_what_was_encoded(either):
    """Picked rows go on as they would have by themselves."""
    batch, index = Batch(), torch.tensor([2, 0, 2])
    encoded = either.encode(batch.source, batch.source_lengths)
    _, state, _ = either.step(batch.target_in[0], either.begin(encoded), encoded)
    tokens = torch.tensor([5, 6, 7])
    for picked, rows in ((state.rows(index), encoded.rows(index)), Decoding(state, encoded).rows(index)):
        log_probabilities, _, attention = either.step(tokens, picked, rows)
        for number, row in enumerate(index.tolist()):
            all_tokens = torch.zeros(4).long()
            all_tokens[row] = tokens[number]
            alone, _, alone_attention = either.step(all_tokens, state, encoded)
            torch.testing.assert_close(log_probabilities[number], alone[row], **EXACT)
            torch.testing.assert_close(attention[number], alone_attention[row], **EXACT)


def test_a_decoding_drops_sources_and_keeps_each_once(either):
    batch = Batch()
    decoding = either.decoding(batch.source, batch.source_lengths)
    _, decoding, _ = either.advance(batch.target_in[0], decoding)
    two_each = decoding.rows(torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]))
    assert two_each.encoded is decoding.encoded
    _, two_each, _ = either.advance(torch.tensor([3, 4, 5, 6, 7, 8, 9, 10]), two_each)
    left = two_each.rows(torch.tensor([3, 2, 2, 7, 6, 7]))
    assert left.encoded.lengths.tolist() == [SOURCE_LENGTHS[1], SOURCE_LENGTHS[3]]
    log_probabilities, _, _ = either.advance(torch.tensor([1, 1, 1, 1, 1, 1]), left)
    for row, (source, token) in enumerate(((1, 6), (1, 5), (1, 5), (3, 10), (3, 9), (3, 10))):
        alone = batch.row(source)
        alone.target_in = torch.tensor([[int(batch.target_in[0, source])], [token], [1]])
        torch.testing.assert_close(log_probabilities[row], decoded(either, alone)[0][2, 0], **EXACT)
    with pytest.raises(
        ValueError, match=r"every remaining source needs the same number of targets, next to each other, got \[1, 2"
    ):
        two_each.rows(torch.tensor([0, 2, 3]))


def test_guarantee_padding_cannot_leak(model):
    """Same bits for the loss, for all gradients and for the logits of true tokens."""
    batch, poisoned = Batch(), Batch().poisoned()
    assert not torch.equal(batch.source, poisoned.source)
    assert not torch.equal(batch.target_in, poisoned.target_in)
    for clean, filled in zip(loss_and_gradients(model, batch), loss_and_gradients(model, poisoned), strict=True):
        assert torch.equal(clean, filled)
    assert torch.equal(model(*batch), model(*poisoned))
    for clean, filled in zip(
        model.encode(batch.source, batch.source_lengths)[:3],
        model.encode(poisoned.source, poisoned.source_lengths)[:3],
        strict=True,
    ):
        assert torch.equal(clean, filled)


def test_guarantee_padding_of_nan_behind_the_encoders_outputs_cannot_leak(model):
    batch = Batch()
    expected, steps = loss_and_gradients(model, batch), decoded(model, batch)
    padding = (torch.arange(9)[:, None] >= batch.source_lengths)[..., None]

    def poison(encoder, inputs, outputs):
        return outputs._replace(memory=outputs.memory.masked_fill(padding, float("nan")))

    model.encoder.register_forward_hook(poison)
    assert model.encoder(EmbeddedTokens(batch.source, model.embedding), batch.source_lengths)[0].isnan().any()
    for ours, clean in zip(loss_and_gradients(model, batch), expected, strict=True):
        assert torch.equal(ours, clean)
    for ours, clean in zip(decoded(model, batch), steps, strict=True):
        assert torch.equal(ours, clean)


def test_guarantee_padding_a_row_alone_is_the_row_in_a_batch(model):
    batch = Batch()
    logits = model(*batch)
    log_probabilities, attention = decoded(model, batch)
    for number, length in enumerate(TARGET_LENGTHS):
        alone = batch.row(number)
        torch.testing.assert_close(model(*alone)[:, 0], logits[:length, number], **EXACT)
        alone_log_probabilities, alone_attention = decoded(model, alone)
        torch.testing.assert_close(alone_log_probabilities[:, 0], log_probabilities[:length, number], **EXACT)
        seen = attention[:length, number]
        torch.testing.assert_close(alone_attention[:, 0], seen[:, : SOURCE_LENGTHS[number]], **EXACT)
        assert torch.equal(seen[:, SOURCE_LENGTHS[number] :], torch.zeros_like(seen[:, SOURCE_LENGTHS[number] :]))


def test_logits_past_a_targets_length_are_the_same_for_all(model):
    logits = model(*Batch())
    padding = torch.arange(len(logits))[:, None] >= torch.tensor(TARGET_LENGTHS)
    assert torch.equal(logits[padding], model.softmax.bias.expand(int(padding.sum()), -1))


def test_sources_are_read_from_their_own_end(either):
    """The first token of a source is read last."""
    batch = Batch()
    ends = either.encoder(EmbeddedTokens(batch.source, either.embedding), batch.source_lengths).last_h
    changed = batch.source.clone()
    changed[SOURCE_LENGTHS[1] - 1, 1] = 3 + (changed[SOURCE_LENGTHS[1] - 1, 1] - 2) % (VOCABULARY - 3)
    other_ends = either.encoder(EmbeddedTokens(changed, either.embedding), batch.source_lengths).last_h
    if either.config.get("attend") != "cells":
        torch.testing.assert_close(ends[-1], either.encode(batch.source, batch.source_lengths).memory[0])
    assert not torch.allclose(ends[-1][1], other_ends[-1][1], atol=1e-9), "the last token of a source is read first"
    assert torch.equal(ends[-1][[0, 2, 3]], other_ends[-1][[0, 2, 3]])


def test_the_encoder_looks_ahead_and_the_decoder_does_not():
    """Of six inputs the first layer's window has three to come, those after it one: in order of reading."""
    model, batch = build(num_layers=2), Batch((9,), (7,))
    memory = model.encode(batch.source, batch.source_lengths).memory
    for place in range(9):
        changed = batch.source.clone()
        changed[place] = 3 + (changed[place] - 2) % (VOCABULARY - 3)
        different = (model.encode(changed, batch.source_lengths).memory != memory).any(-1)[:, 0]
        # Read from the end: what is read later stands earlier.
        assert different.nonzero().flatten().tolist() == list(range(min(9, place + 3 + 1 + 1)))
    logits = model(*batch)
    for place in range(7):
        changed = Batch((9,), (7,))
        changed.target_in[place] = 3 + (changed.target_in[place] - 2) % (VOCABULARY - 3)
        different = (model(*changed) != logits).any(-1)[:, 0]
        assert different.nonzero().flatten().tolist() == list(range(place, 7))


def test_rows_are_reversed_within_their_lengths():
    x = torch.randn(5, 3, 2)
    lengths = torch.tensor([5, 1, 3])
    reversed_x = reverse_rows(x, lengths)
    for row, length in enumerate(lengths.tolist()):
        assert torch.equal(reversed_x[:length, row], x[:length, row].flip(0))
        assert torch.equal(reversed_x[length:, row], x[length:, row])
    assert torch.equal(reverse_rows(reversed_x, lengths), x)


@pytest.mark.parametrize(
    ("kernel_size", "num_layers", "widths"),
    [(None, 4, (6, 2, 2, 2)), (None, 1, (6,)), (3, 2, (3, 3)), ([6, 1], 2, (6, 1)), ((2, 3, 4), 3, (2, 3, 4))],
)
def test_widths_of_the_encoder(kernel_size, num_layers, widths):
    assert encoder_kernel_sizes(kernel_size, num_layers) == widths
    layers = build(kernel_size=kernel_size, num_layers=num_layers)
    assert tuple(layer.kernel_size for layer in layers.encoder.layers) == widths
    assert {layer.kernel_size for layer in layers.decoder.layers} == {2}


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_label_smoothing_is_that_of_pytorch_in_training_alone(cell):
    model, plain, batch = build(cell=cell, label_smoothing=0.1), build(cell=cell), Batch()
    expected = F.cross_entropy(
        model(*batch).flatten(0, 1),
        batch.labels.flatten(),
        ignore_index=model.padding,
        reduction="sum",
        label_smoothing=0.1,
    )
    assert torch.equal(model(*batch, labels=batch.labels), plain(*batch, labels=batch.labels))
    torch.testing.assert_close(model.train()(*batch, labels=batch.labels), expected, **EXACT)


def test_gradients_reach_every_parameter(model):
    batch = Batch()
    _, *gradients = loss_and_gradients(model, batch)
    for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
        assert gradient.isfinite().all(), name
        # Tokens that do not occur, padding among them, have no gradient.
        # The output gate of an encoder whose cells are attended to counts at its last step alone, where a part of the
        # window lies outside the source.
        share = 0.8 if model.config.get("attend") == "cells" else 0.9
        assert gradient.any() if "embedding" in name else gradient.bool().double().mean() > share, name
    assert not gradients[0][model.padding].any()


@pytest.mark.parametrize("arguments", [{"dropout": 0.5}, {"zoneout": 0.5}, {"cell": "lstm", "dropout": 0.5}])
def test_dropout_acts_in_training_alone_and_zoneout_at_random_there(arguments):
    model, plain, batch = build(**arguments), build(cell=arguments.get("cell", "qrnn")), Batch()
    # In eval zoneout is its expectation: nothing is drawn, but the outputs are others.
    assert torch.equal(model(*batch), plain(*batch)) == ("zoneout" not in arguments)
    assert torch.equal(model(*batch), model(*batch))
    model.train()
    first, second = model(*batch), model(*batch)
    assert not torch.allclose(first[0], second[0])


@pytest.mark.parametrize("cell", ["qrnn", "lstm"])
def test_dropout_stands_between_layers_and_nowhere_else(cell):
    model, seen = build(cell=cell, dropout=0.5, num_layers=3, hidden_size=40).train(), []
    layers = [*model.encoder.layers, *(model.decoder.layers if cell == "qrnn" else [model.decoder.rnn])]
    for layer in layers:
        layer.register_forward_pre_hook(lambda layer, inputs: seen.append((inputs[0] == 0).double().mean().item()))
    model(*Batch((9, 9), (7, 7)))
    between = pytest.approx(0.5, abs=0.08)
    assert seen == [0.0, between, between, 0.0] + ([between, between] if cell == "qrnn" else [])
    if cell == "lstm":
        assert model.decoder.rnn.dropout == 0.5
    h = model.decoder(EmbeddedTokens(Batch().target_in, model.embedding), model.encode(*list(Batch())[:2]))[0]
    assert (h != 0).all()


def test_one_layer_has_nothing_to_drop_between():
    for cell in ("qrnn", "lstm"):
        model = build(cell=cell, dropout=0.5, num_layers=1).train()
        assert torch.equal(model(*Batch()), model(*Batch()))


@pytest.mark.parametrize(
    ("arguments", "parameters"),
    [
        # Embedding and softmax: 2 * 200 * 320 + 200; W_k and W_c: 2 * 320 ** 2. In units of 320 ** 2, the
        # encoder: 6 * 3 and thrice 2 * 3; the decoder: four times 2 * 3, and four times 3 for V. 8 layers with 3 * 320
        # biases.
        ({}, 128_200 + (2 + 18 + 18 + 24 + 12) * 102_400 + 8 * 960),
        # Layers of 4 * 2, two sets of 4 * 320 biases each; four times 1 for V.
        ({"cell": "lstm"}, 128_200 + (2 + 32 + 32 + 4) * 102_400 + 16 * 1280),
    ],
)
def test_parameters_of_the_papers_models(arguments, parameters):
    with torch.device("meta"):
        model = Translator(200, **arguments)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.parametrize(
    "arguments", [{"pooling": "f"}, {"pooling": "fo"}, {"pooling": "ifo"}, {"cell": "lstm"}], ids=str
)
def test_the_gates_of_every_layer_start_with_a_variance_near_one(arguments, monkeypatch):
    """Of an LSTM's decoder, whose layers are one module, the first is seen."""
    # First layers as well have vectors for input.
    monkeypatch.setattr(embedding_projection, "MIN_STEPS_PER_TOKEN", float("inf"))
    model, inputs = Translator(60, hidden_size=64, **arguments).eval(), []
    for module in model.modules():
        if isinstance(module, QRNNLayer | nn.LSTM):
            module.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0]))
    tokens, lengths = torch.randint(3, 60, (40, 8)), torch.full((8,), 40)
    variances = []
    with torch.no_grad():
        model(tokens, lengths, tokens, lengths)
        for weight, x in zip(model.encoder.input_weights + model.decoder.input_weights, inputs, strict=False):
            kernel = weight.view(len(weight), -1, 64).permute(0, 2, 1)
            variances.append(F.conv1d(x.permute(1, 2, 0), kernel).var().item())
    assert len(variances) == (5 if "cell" in arguments else 8)
    assert min(variances) > 0.3, variances
    assert max(variances) < 3, variances


def test_both_languages_have_one_embedding_and_the_marks_are_remembered():
    model = build(padding=4, start=5, end=6)
    assert (model.padding, model.start, model.end) == (4, 5, 6)
    assert not model.embedding.weight[4].any()
    assert [module for module in model.modules() if isinstance(module, nn.Embedding)] == [model.embedding]
    assert model.vocabulary_size == VOCABULARY


@pytest.mark.parametrize("arguments", VARIANTS.values(), ids=VARIANTS)
def test_a_model_is_read_as_it_was_saved(tmp_path, arguments):
    model = Translator(VOCABULARY, **{"hidden_size": 5, "num_layers": 2, "end": 9, **arguments}).eval()
    model.save_pretrained(tmp_path)
    again = Translator.from_pretrained(tmp_path)
    assert again.config == model.config
    assert (again.padding, again.start, again.end) == (0, 1, 9)
    assert not again.training
    assert torch.equal(again(*Batch()), model(*Batch()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cell": "lstm", "zoneout": 0.1}, "an LSTM has no zoneout: leave it out, or use cell='qrnn'"),
        ({"cell": "lstm", "kernel_size": 2, "pooling": "fo"}, "an LSTM has no kernel_size and no pooling"),
        ({"attend": "c"}, "Translator: attend must be 'outputs' or 'cells', got 'c'"),
        ({"cell": "lstm", "attend": "cells"}, "an LSTM has no attend: leave it out"),
        ({"cell": "lstm", "init_decoder": True}, "an LSTM has no init_decoder"),
        ({"label_smoothing": 1.5}, "Translator: label_smoothing is a probability"),
        ({"cell": "gru"}, "cell must be 'qrnn' or 'lstm', got 'gru'"),
        ({"kernel_size": (6, 2, 2)}, "Translator: kernel_size has 3 widths for num_layers = 2; give one per layer"),
        ({"kernel_size": (6, 0)}, "Translator: kernel_size must be at least 1, got 0"),
        ({"num_layers": 0}, "Translator: num_layers must be at least 1, got 0"),
        ({"hidden_size": 0}, "Translator: hidden_size must be at least 1, got 0"),
        ({"embedding_size": 0}, "Translator: embedding_size must be at least 1, got 0"),
        ({"pooling": "of"}, 'Translator: pooling must be "f", "fo" or "ifo", got'),
        ({"zoneout": 1.5}, "Translator: zoneout is a probability"),
        ({"dropout": -0.1}, "Translator: dropout is a probability"),
        ({"end": 11}, "Translator: end must be a token of the vocabulary, 0 to 10, got 11"),
        ({"padding": -1}, "Translator: padding must be a token of the vocabulary, 0 to 10, got -1"),
        ({"start": 2}, "padding, start and end must be three different tokens, got padding = 0, start = 2, end = 2"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        build(**arguments)


def test_wrong_inputs(either):
    batch = Batch()
    source, source_lengths, target_in, target_lengths = batch
    wrong = [
        ((source, source_lengths, target_in.T, target_lengths), r"same B, got \(9, 4\) and \(4, 7\). Time comes first"),
        ((source[:, 0], source_lengths, target_in, target_lengths), r"got \(9,\) and \(7, 4\)"),
        ((source, source_lengths + 1, target_in, target_lengths), "Translator, source: a length of 10 is more than"),
        ((source, source_lengths, target_in, target_lengths - 1), "Translator, target: every length must be at least"),
        ((source, source_lengths[:2], target_in, target_lengths), "Translator, source: lengths must have one entry"),
        ((*batch, batch.labels[1:]), r"labels must have the shape of target_in, \(T, B\) = \(7, 4\), got \(6, 4\)"),
    ]
    for inputs, message in wrong:
        with pytest.raises(ValueError, match=message):
            either(*inputs)
    with pytest.raises(ValueError, match=r"the source must be \(S, B\), got shape \(9,\)"):
        either.encode(source[:, 0], source_lengths)
    encoded = either.encode(source, source_lengths)
    with pytest.raises(ValueError, match=r"one token for each of the 4 encoded sources, .* got shape \(6,\)"):
        either.step(torch.ones(6).long(), either.begin(encoded), encoded)
    with pytest.raises(ValueError, match=r"the state has 4 targets, but there are 8 tokens. state.repeat\(n\)"):
        either.step(torch.ones(8).long(), either.begin(encoded), encoded)


def test_autocast_is_close_and_keeps_attention_in_float32(either):
    model, batch = either.float(), Batch()
    expected, gradients = model(*batch), loss_and_gradients(model, batch)
    steps = decoded(model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        logits, rough = model(*batch), loss_and_gradients(model, batch)
        encoded = model.encode(batch.source, batch.source_lengths)
        log_probabilities, attention = decoded(model, batch, encoded)
    assert attention.dtype == log_probabilities.dtype == rough[0].dtype == torch.float32
    torch.testing.assert_close(logits.float(), expected, rtol=0, atol=0.05)
    torch.testing.assert_close(log_probabilities, steps[0], rtol=0, atol=0.05)
    torch.testing.assert_close(attention, steps[1], rtol=0, atol=0.05)
    assert rough[0].item() == pytest.approx(gradients[0].item(), rel=0.01)
    for ours, exact in zip(rough[1:], gradients[1:], strict=True):
        assert (ours - exact).norm() < 0.1 * exact.norm() + 0.01


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_of_16_bits_runs(dtype):
    model = build().to(dtype)
    assert model(*Batch()).dtype == dtype
    log_probabilities, attention = decoded(model, Batch())
    assert log_probabilities.dtype == attention.dtype == torch.float32
    torch.testing.assert_close(log_probabilities.double(), decoded(build(), Batch())[0], rtol=0, atol=0.1)


@pytest.mark.parametrize("arguments", CELLS.values(), ids=CELLS)
def test_copying_is_learned(arguments):
    """A source of 2 to 4 tokens, repeated: only the attention and eq. 7 can transmit it."""
    torch.manual_seed(3)
    model = Translator(VOCABULARY, hidden_size=24, num_layers=2, **arguments)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(90):
        lengths = torch.randint(2, 5, (16,))
        rows = [torch.randint(3, VOCABULARY, (length,)) for length in lengths.tolist()]
        target = pad_sequence([torch.cat([torch.tensor([1]), row, torch.tensor([2])]) for row in rows])
        loss = model(pad_sequence(rows), lengths, target[:-1], lengths + 1, target[1:]) / (lengths + 1).sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 1.5
    assert sum(losses[-10:]) / 10 < 0.4 * losses[0]
