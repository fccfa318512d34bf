"""Rows of different lengths: each row as if it were alone, whatever the padding holds."""

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence

from quasirnn import QRNN
from quasirnn.models import Translator

pytestmark = pytest.mark.backends

LENGTHS = [7, 2, 5, 1, 7]
VARIANTS = {
    "causal": {"kernel_size": (3, 2)},
    "wide": {"kernel_size": (6, 4), "pooling": "ifo"},
    "dense": {"kernel_size": 3, "dense": True, "pooling": "f"},
    "bidirectional": {"kernel_size": 3, "bidirectional": True},
    "bidirectional dense ifo": {"kernel_size": (2, 3), "bidirectional": True, "dense": True, "pooling": "ifo"},
    "unmasked": {"kernel_size": (3, 4), "causal": False},
    "unmasked both ways": {"kernel_size": (3, 2), "causal": False, "bidirectional": True},
    "width one": {"kernel_size": 1},
}
all_variants = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)


def padded(fill: float = 0.0, dtype: torch.dtype = torch.float64) -> Tensor:
    torch.manual_seed(5)
    x = torch.randn(max(LENGTHS), len(LENGTHS), 3, dtype=dtype)
    for row, length in enumerate(LENGTHS):
        x[length:, row] = fill
    return x


def gradients(rnn: QRNN, output: Tensor, state: tuple[Tensor, Tensor], *inputs: Tensor) -> list[Tensor]:
    loss = output.sin().sum() + state[0].cos().sum() + (state[1] ** 2).sum()
    return list(torch.autograd.grad(loss, [*rnn.parameters(), *inputs]))


@all_variants
def test_each_row_is_as_if_it_were_alone(options):
    rnn = QRNN(3, 5, 2, **options, dtype=torch.float64)
    x = padded().requires_grad_()
    cells = torch.randn(len(rnn.layers), len(LENGTHS), 5, dtype=torch.float64)
    output, (h_n, c_n) = rnn(x, (cells, cells), lengths=LENGTHS)
    alone = [
        rnn(x[:length, row], (cells[:, row], cells[:, row])) for row, length in enumerate(LENGTHS)
    ]  # unbatched, so no other row is in sight
    assert output.shape == (7, 5, 5 * rnn.num_directions)
    for row, (length, (true, (h_row, c_row))) in enumerate(zip(LENGTHS, alone, strict=True)):
        torch.testing.assert_close(output[:length, row], true, rtol=0, atol=1e-14)
        assert torch.equal(output[length:, row], torch.zeros_like(output[length:, row]))
        torch.testing.assert_close(h_n[:, row], h_row, rtol=0, atol=1e-14)
        torch.testing.assert_close(c_n[:, row], c_row, rtol=0, atol=1e-14)
    mine = gradients(rnn, output, (h_n, c_n), x)
    summed = [gradients(rnn, o, s, x) for o, s in alone]
    for n, gradient in enumerate(mine):
        # Of the padding's sine, which is zero, nothing arrives either.
        torch.testing.assert_close(gradient, sum(each[n] for each in summed), rtol=1e-12, atol=1e-12)


@all_variants
@pytest.mark.parametrize("fill", [torch.nan, torch.inf, 1e30])
def test_guarantee_padding_cannot_leak(options, fill):
    rnn = QRNN(3, 5, 2, **options)
    found = []
    for x in (padded(0.0, torch.float32), padded(fill, torch.float32)):
        x.requires_grad_()
        output, state = rnn(x, lengths=LENGTHS)
        found.append([output, *state, *gradients(rnn, output, state, x)])
    for clean, filled in zip(*found, strict=True):
        assert torch.equal(clean, filled), "the same bits, gradients included"
        assert clean.isfinite().all()


def test_guarantee_padding_cannot_leak_where_the_work_is_divided():
    # 2,600 rows of input: more than one block of them, in the matrix products as in the pooling.
    rnn = QRNN(9, 33, 2, bidirectional=True, kernel_size=3)
    lengths = torch.randint(1, 131, (20,))
    clean = torch.randn(130, 20, 9)
    past = torch.arange(130)[:, None] >= lengths
    found = []
    for x in (clean, clean.masked_fill(past[:, :, None], torch.nan)):
        output, state = rnn(x, lengths=lengths)
        found.append([output, *state, *gradients(rnn, output, state)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@all_variants
def test_guarantee_padding_cannot_leak_into_inspection(options):
    rnn = QRNN(3, 5, 2, **options)
    clean, filled = (rnn.inspect(padded(fill, torch.float32), lengths=LENGTHS) for fill in (0.0, torch.nan))
    for layer, tensors in clean.items():
        for name, tensor in tensors.items():
            for row, length in enumerate(LENGTHS):
                assert torch.equal(tensor[:length, row], filled[layer][name][:length, row])


@pytest.mark.parametrize("T", [9, 40])
def test_longer_padding_changes_nothing(T):
    rnn = QRNN(3, 5, 2, bidirectional=True, kernel_size=3)
    x = padded(dtype=torch.float32)
    longer = torch.cat([x, torch.full((T - 7, 5, 3), torch.nan)])
    output, state = rnn(x, lengths=LENGTHS)
    longer_output, longer_state = rnn(longer, lengths=LENGTHS)
    torch.testing.assert_close(longer_output[:7], output, rtol=0, atol=1e-6)
    assert torch.equal(longer_output[7:], torch.zeros(T - 7, 5, 10))
    torch.testing.assert_close(longer_state, state, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_guarantee_another_batch_composition_to_rounding(dtype):
    rnn = QRNN(3, 40, 2, bidirectional=True, kernel_size=3, dtype=dtype)
    rows = [torch.randn(length, 3, dtype=dtype) for length in (9, 3, 5, 1, 9, 4, 2, 8)]
    lengths = torch.tensor([len(row) for row in rows])
    whole, (h_n, _) = rnn(pad_sequence(rows), lengths=lengths)
    for members in ([5], [1, 5, 7], [7, 6, 5, 4, 3, 2, 1, 0], [5] * 20):
        output, (h_some, _) = rnn(pad_sequence([rows[m] for m in members]), lengths=lengths[members])
        tolerance = 8 * torch.finfo(dtype).eps
        torch.testing.assert_close(output, whole[: len(output), members], rtol=0, atol=tolerance)
        torch.testing.assert_close(h_some, h_n[:, members], rtol=0, atol=tolerance)


@all_variants
@pytest.mark.parametrize("order", ["sorted", "unsorted"])
def test_packed_is_the_same_as_lengths(options, order):
    rnn = QRNN(3, 5, 2, **options)
    lengths = torch.tensor(sorted(LENGTHS, reverse=True) if order == "sorted" else LENGTHS)
    x = padded(dtype=torch.float32)
    cells = torch.randn(len(rnn.layers), len(lengths), 5)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=order == "sorted")
    packed_output, packed_state = rnn(packed, (cells, cells))
    output, state = rnn(x, (cells, cells), lengths=lengths)
    unpacked, again = pad_packed_sequence(packed_output)
    assert torch.equal(again, lengths)
    assert torch.equal(unpacked, output)
    assert all(torch.equal(mine, true) for mine, true in zip(packed_state, state, strict=True))
    for field in ("batch_sizes", "sorted_indices", "unsorted_indices"):
        mine, true = getattr(packed_output, field), getattr(packed, field)
        assert mine is true or torch.equal(mine, true)
    mine = gradients(rnn, packed_output.data, packed_state)
    # sin(0) = 0: the padding adds nothing to the loss, so that the gradients are comparable.
    for a, b in zip(mine, gradients(rnn, output, state), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_packed_pieces_continue_row_by_row():
    rnn = QRNN(3, 5, kernel_size=4, dtype=torch.float64).eval()
    x, y = ([torch.randn(n, 3, dtype=torch.float64) for n in lengths] for lengths in ((2, 6, 3), (5, 1, 4)))
    _, state = rnn(pack_sequence(x, enforce_sorted=False))
    output, _ = rnn(pack_sequence(y, enforce_sorted=False), state)
    whole, _ = rnn(pack_sequence([torch.cat(pair) for pair in zip(x, y, strict=True)], enforce_sorted=False))
    pieces, wholes = (pad_packed_sequence(p)[0] for p in (output, whole))
    for row, (before, after) in enumerate(zip(x, y, strict=True)):
        end = len(before) + len(after)
        torch.testing.assert_close(pieces[: len(after), row], wholes[len(before) : end, row], rtol=0, atol=1e-14)


@pytest.mark.parametrize("lengths", [LENGTHS, tuple(LENGTHS), torch.tensor(LENGTHS), torch.tensor(LENGTHS).int()])
def test_lengths_come_in_any_form(lengths):
    rnn = QRNN(3, 5)
    x = padded(dtype=torch.float32)
    assert torch.equal(rnn(x, lengths=lengths)[0], rnn(x, lengths=torch.tensor(LENGTHS))[0])


def test_lengths_are_checked_once_for_all_layers(monkeypatch):
    calls, aminmax = [], torch.aminmax
    monkeypatch.setattr(torch, "aminmax", lambda value: calls.append(value) or aminmax(value))
    lengths = torch.tensor(LENGTHS)
    QRNN(3, 5, 3, bidirectional=True)(padded(dtype=torch.float32), lengths=lengths)
    assert len(calls) == 1
    source = torch.randint(3, 9, (7, 5))
    Translator(9, hidden_size=4, num_layers=3)(source, lengths, source, lengths)
    assert len(calls) == 3, "the source's and the target's"
