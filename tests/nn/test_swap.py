"""Programs written for `nn.LSTM`, run and trained with either class: only the name in `cell` differs."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from quasirnn import QRNN

both_cells = pytest.mark.parametrize("cell", [nn.LSTM, QRNN])


class Classifier(nn.Module):
    """Packed text of any order into a bidirectional stack; the last states are the summary."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.rnn = cell(8, 16, 2, True, True, 0.1, True)
        self.linear = nn.Linear(64, 2)

    def forward(self, tokens: Tensor, lengths: Tensor, enforce_sorted: bool) -> Tensor:
        self.rnn.flatten_parameters()
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=enforce_sorted)
        outputs, (hidden, cell) = self.rnn(packed)
        assert hidden.shape == cell.shape == (4, tokens.shape[0], 16)
        padded, again = pad_packed_sequence(outputs, batch_first=True, total_length=tokens.shape[1])
        assert padded.shape == (*tokens.shape, 32)
        assert torch.equal(again, lengths)
        summary = torch.cat([hidden[-2], hidden[-1], padded.max(dim=1).values], dim=1)
        return self.linear(summary)


class LanguageModel(nn.Module):
    """After the word_language_model example of PyTorch: state made by the model, carried by the loop."""

    def __init__(self, cell: type[nn.Module], nhid: int = 16, nlayers: int = 2) -> None:
        super().__init__()
        self.nhid, self.nlayers = nhid, nlayers
        self.encoder = nn.Embedding(20, 8)
        self.rnn = cell(8, nhid, nlayers, dropout=0.1)
        self.decoder = nn.Linear(nhid, 20)

    def forward(self, tokens: Tensor, hidden):
        output, hidden = self.rnn(self.encoder(tokens), hidden)
        return self.decoder(output), hidden

    def init_hidden(self, bsz: int):
        weight = next(self.parameters())
        return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))


def repackage_hidden(h):
    """Wraps hidden states in new tensors, to detach them from their history."""
    if isinstance(h, Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)


def unpack_hidden(state):
    h, c = state
    return h.detach(), c.detach()


def steps_down(model: nn.Module, step, count: int = 40) -> None:
    """A few optimizer steps, every parameter in reach of the gradient, and the loss goes down."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = step()
        loss.backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0], losses


@both_cells
@pytest.mark.parametrize("order", ["sorted", "unsorted"])
def test_classifier_on_packed_sequences(cell, order):
    model = Classifier(cell)
    lengths = torch.tensor([9, 7, 5, 2, 1] if order == "sorted" else [5, 9, 1, 7, 2])
    tokens = torch.randint(1, 20, (5, 9))
    tokens[torch.arange(9) >= lengths[:, None]] = 0
    target = torch.tensor([0, 1, 0, 1, 1])
    steps_down(model, lambda: nn.functional.cross_entropy(model(tokens, lengths, order == "sorted"), target))


@both_cells
@pytest.mark.parametrize("detach", [repackage_hidden, unpack_hidden])
def test_language_model_that_carries_its_state(cell, detach):
    model = LanguageModel(cell)
    tokens = torch.randint(20, (33, 4))
    hidden = model.init_hidden(4)

    def step():
        nonlocal hidden
        total = 0
        for start in range(0, 32, 8):
            hidden = detach(hidden)
            assert isinstance(hidden, tuple)
            assert not any(part.requires_grad for part in hidden)
            logits, hidden = model(tokens[start : start + 8], hidden)
            target = tokens[start + 1 : start + 9]
            total = total + nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        return total

    steps_down(model, step)


@both_cells
def test_encoder_hands_its_state_to_a_decoder(cell):
    encoder, decoder = cell(8, 16, 2, batch_first=True), cell(8, 16, 2, batch_first=True)
    source, target = torch.randn(3, 7, 8), torch.randn(3, 4, 8)
    _, state = encoder(source)
    output, _ = decoder(target, state)
    output.sum().backward()
    assert encoder.get_parameter(next(name for name, _ in encoder.named_parameters())).grad.abs().sum() > 0


@both_cells
def test_named_arguments_and_attributes(cell):
    rnn = cell(
        input_size=8, hidden_size=16, num_layers=2, bias=False, batch_first=True, dropout=0.5, bidirectional=True
    )
    names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
    assert [getattr(rnn, name) for name in names] == [8, 16, 2, False, True, 0.5, True]
    for name, parameter in rnn.named_parameters():
        # The usual loop over names for initialisation.
        assert "weight" in name
        nn.init.zeros_(parameter)
    rnn.reset_parameters()
    assert all(parameter.abs().sum() > 0 for parameter in rnn.parameters())


CALLS = {
    "time first": ({}, (7, 3, 8)),
    "batch first": ({"batch_first": True}, (3, 7, 8)),
    "unbatched": ({}, (7, 8)),
    "unbatched, batch first": ({"batch_first": True}, (7, 8)),
    "one step": ({}, (1, 3, 8)),
    "one row": ({}, (7, 1, 8)),
}


@pytest.mark.parametrize("settings", [(1, False), (3, False), (1, True), (2, True)], ids=str)
@pytest.mark.parametrize(("options", "shape"), CALLS.values(), ids=CALLS)
def test_shapes_are_those_of_an_lstm(options, shape, settings):
    num_layers, bidirectional = settings
    x = torch.randn(shape)
    shapes = []
    for cell in (nn.LSTM, QRNN):
        rnn = cell(8, 16, num_layers, bidirectional=bidirectional, **options)
        output, (h_n, c_n) = rnn(x)
        # Behind the cells, the same columns for both, a QRNN's c_n holds the last inputs.
        shapes.append((output.shape, h_n.shape, c_n[..., :16].shape))
        output, state = rnn(x, (h_n, c_n))
        assert (output.shape, state[0].shape, state[1].shape) == (shapes[-1][0], h_n.shape, c_n.shape)
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("batch_first", [False, True])
def test_packed_output_is_laid_out_as_an_lstms(batch_first):
    rows = [torch.randn(length, 8) for length in (2, 9, 4)]
    packed = pack_sequence(rows, enforce_sorted=False)
    mine, theirs = (cell(8, 16, batch_first=batch_first)(packed)[0] for cell in (QRNN, nn.LSTM))
    assert isinstance(mine, PackedSequence)
    assert mine.data.shape == theirs.data.shape
    for field in ("batch_sizes", "sorted_indices", "unsorted_indices"):
        assert torch.equal(getattr(mine, field), getattr(theirs, field))
