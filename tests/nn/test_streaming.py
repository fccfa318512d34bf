"""A sequence in pieces: the state carried from call to call gives the whole's output (eval, causal, one direction)."""

import copy
import random

import pytest
import torch
from torch import Tensor

from quasirnn import QRNN

pytestmark = pytest.mark.backends

# Pieces differ from the whole by the order in which a matrix product adds, nothing else. Measured over the splits
# below: 2.2 eps of the largest value in float64 and in float32, with and without kernels.
TOLERANCE = {dtype: 8 * torch.finfo(dtype).eps for dtype in (torch.float64, torch.float32)}


def random_rnn(draw: random.Random, dtype: torch.dtype) -> QRNN:
    num_layers = draw.randint(1, 3)
    return QRNN(
        draw.randint(1, 6),
        draw.randint(1, 9),
        num_layers,
        bias=draw.random() < 0.8,
        kernel_size=[draw.choice((1, 2, 3, 4, 7)) for _ in range(num_layers)],
        pooling=draw.choice(("f", "fo", "ifo")),
        dense=draw.random() < 0.5,
        dropout=0.5 if num_layers > 1 else 0.0,
        zoneout=0.3,
        dtype=dtype,
    ).eval()


def cuts(draw: random.Random, T: int) -> list[int]:
    """Sizes of the pieces: anything from one step at a time to all at once."""
    if draw.random() < 0.2:
        return [1] * T
    ends = sorted(draw.sample(range(1, T), draw.randint(0, min(T - 1, 6)))) if T > 1 else []
    return [b - a for a, b in zip([0, *ends], [*ends, T], strict=True)]


def in_pieces(rnn: QRNN, x: Tensor, sizes: list[int], state=None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    outputs = []
    for piece in x.split(sizes):
        output, state = rnn(piece, state)
        outputs.append(output)
    return torch.cat(outputs), state


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("batch", [0, 1, *(pytest.param(batch, marks=pytest.mark.full) for batch in range(2, 10))])
def test_guarantee_cut_anywhere_1000_random_splits(batch, dtype, worst_cell):
    draw = random.Random(batch)
    worst, where = 0.0, ""
    for _ in range(100):
        rnn = random_rnn(draw, dtype)
        T, B = draw.randint(1, 24), draw.randint(1, 4)
        x = torch.randn(T, B, rnn.input_size, dtype=dtype)
        state = rnn(torch.randn(2, B, rnn.input_size, dtype=dtype))[1] if draw.random() < 0.3 else None
        sizes = cuts(draw, T)
        with torch.no_grad():
            whole, whole_state = rnn(x, state)
            output, new_state = in_pieces(rnn, x, sizes, state)
        for mine, true in ((output, whole), *zip(new_state, whole_state, strict=True)):
            error = (mine - true).abs().max().item() / max(1.0, true.abs().max().item())
            assert error <= TOLERANCE[dtype], f"{sizes} {rnn}"
            if error >= worst:
                worst, where = error, f"pieces {sizes}, {rnn.extra_repr()}"
    worst_cell(f"cut anywhere, {dtype}", worst / TOLERANCE[dtype], where)


@pytest.mark.parametrize("pooling", ["f", "fo", "ifo"])
def test_gradient_through_a_cut_is_the_gradient_of_the_whole(pooling):
    rnn = QRNN(3, 5, 2, kernel_size=(4, 3), pooling=pooling, dense=True, dtype=torch.float64)
    x = torch.randn(9, 2, 3, dtype=torch.float64, requires_grad=True)
    first = tuple(part.detach().requires_grad_() for part in rnn(torch.randn(4, 2, 3, dtype=torch.float64))[1])
    gradients = []
    for sizes in ([9], [3, 1, 1, 4], [1] * 9):
        output, (h_n, c_n) = in_pieces(rnn, x, sizes, first)
        loss = (output.cumsum(0) ** 2).sum() + h_n.sin().sum() + (c_n**3).sum()
        gradients.append(torch.autograd.grad(loss, [*rnn.parameters(), x, first[1]]))
    for pieces in gradients[1:]:
        for mine, true in zip(pieces, gradients[0], strict=True):
            torch.testing.assert_close(mine, true, rtol=1e-12, atol=1e-12)


def test_window_wider_than_every_piece():
    rnn = QRNN(2, 3, 2, kernel_size=(9, 7), dtype=torch.float64).eval()
    x = torch.randn(6, 2, 2, dtype=torch.float64)
    whole, (_, c_n) = rnn(x)
    output, (_, c_pieces) = in_pieces(rnn, x, [2, 1, 3])
    torch.testing.assert_close(output, whole, rtol=0, atol=TOLERANCE[torch.float64])
    torch.testing.assert_close(c_pieces, c_n, rtol=0, atol=TOLERANCE[torch.float64])
    assert torch.equal(c_n[0, :, 3 : 3 + 2 * 2], torch.zeros(2, 4).double()), "before the first step there is zero"
    assert torch.equal(c_n[0, :, 3 + 2 * 2 : 3 + 8 * 2], x.transpose(0, 1).flatten(1))


def test_rows_of_a_state_can_be_picked():
    rnn = QRNN(3, 5, 2, kernel_size=3, dtype=torch.float64).eval()
    x, y = torch.randn(4, 3, 3, dtype=torch.float64), torch.randn(2, 5, 3, dtype=torch.float64)
    rows = torch.tensor([2, 0, 0, 1, 2])
    _, (h, c) = rnn(x)
    output, _ = rnn(y, (h[:, rows], c[:, rows]))
    whole, _ = rnn(torch.cat([x[:, rows], y]))
    torch.testing.assert_close(output, whole[4:], rtol=0, atol=TOLERANCE[torch.float64])
    # Neither an expanded nor a strided state need be contiguous.
    one = rnn(x[:, :1])[1]
    spread, _ = rnn(y, tuple(part.expand(-1, 5, -1) for part in one))
    strided, _ = rnn(y, tuple(torch.stack([part, part], dim=-1)[..., 0].expand(-1, 5, -1) for part in one))
    torch.testing.assert_close(spread, rnn(y, tuple(part.repeat(1, 5, 1) for part in one))[0], rtol=0, atol=0)
    assert torch.equal(spread, strided)


def test_state_is_detached_and_moved_like_any_pair_of_tensors():
    rnn = QRNN(3, 5, 2, kernel_size=3)
    x = torch.randn(4, 2, 3)
    state = rnn(x)[1]
    assert all(part.requires_grad for part in state)
    h, c = state
    output, _ = rnn(x, (h.detach(), c.detach()))
    assert torch.equal(output, rnn(x, [part.to("cpu", copy=True) for part in state])[0])
    rnn.zero_grad()
    output.sum().backward()
    detached = [p.grad for p in rnn.parameters()]
    rnn.zero_grad()
    rnn(x, state)[0].sum().backward()
    assert not any(torch.equal(p.grad, before) for p, before in zip(rnn.parameters(), detached, strict=True))
    # A state of another precision is taken, as it comes out of autocast or of a 16-bit model.
    torch.testing.assert_close(rnn(x, tuple(part.double() for part in state))[0], output)


def test_pair_shaped_like_an_lstms_starts_the_cells_without_context():
    rnn = QRNN(3, 5, 2, kernel_size=3).eval()
    x = torch.randn(4, 2, 3)
    h_0, c_0 = torch.randn(2, 2, 2, 5)
    with pytest.warns(UserWarning, match=r"QRNN: h_0 has no effect: .* pass it as c_0"):
        output, (_, c_n) = rnn(x, (h_0, c_0))
    assert c_n.shape == (2, 2, 5 + 2 * 5)
    assert torch.equal(output, rnn(x, (torch.full_like(h_0, torch.nan), c_0))[0]), "h_0 is not used"
    assert torch.equal(output, rnn(x, (h_0, torch.nn.functional.pad(c_0, (0, 10))))[0]), "the context is zero"
    assert torch.equal(rnn(x)[0], rnn(x, (h_0, torch.zeros_like(c_0)))[0])


@pytest.mark.parametrize("options", [{"bidirectional": True}, {"causal": False}])
def test_without_a_causal_window_a_state_sets_the_cells_only(options):
    rnn = QRNN(3, 5, kernel_size=3, pooling="f", **options).eval()
    x = torch.randn(4, 2, 3)
    _, (h_n, c_n) = rnn(x)
    assert h_n.shape == c_n.shape
    output, _ = rnn(x, (h_n, c_n))
    f = rnn.inspect(x)["l0"]["f"]
    torch.testing.assert_close(output[0, :, :5], rnn(x)[0][0, :, :5] + f[0] * c_n[0])


def test_nothing_is_kept_on_the_module():
    rnn = QRNN(3, 5, 2, kernel_size=3).eval()
    before, attributes = copy.deepcopy(rnn.state_dict()), set(vars(rnn))
    streams = torch.randn(8, 2, 3), torch.randn(8, 5, 3)  # of different batch sizes
    alone = [in_pieces(rnn, x, [2, 2, 4])[0] for x in streams]
    states, outputs = [None, None], [[], []]
    for start, end in ((0, 2), (2, 4), (4, 8)):
        for n, x in enumerate(streams):
            output, states[n] = rnn(x[start:end], states[n])
            outputs[n].append(output)
    for n in range(2):
        assert torch.equal(torch.cat(outputs[n]), alone[n]), "interleaved streams do not disturb one another"
    assert rnn.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in rnn.state_dict().items())
    assert set(vars(rnn)) == attributes
    assert not list(rnn.buffers())


def test_a_returned_state_is_not_changed_by_later_calls():
    rnn = QRNN(3, 5, kernel_size=3).eval()
    x = torch.randn(4, 2, 3)
    _, state = rnn(x)
    kept = copy.deepcopy([part.detach() for part in state])
    rnn(torch.randn(4, 2, 3), state)
    x.fill_(torch.nan)
    assert all(torch.equal(part, before) for part, before in zip(state, kept, strict=True))


def test_rows_continue_at_their_own_ends():
    rnn = QRNN(3, 5, 2, kernel_size=(4, 2), dense=True, dtype=torch.float64).eval()
    x, y = torch.randn(6, 4, 3, dtype=torch.float64), torch.randn(5, 4, 3, dtype=torch.float64)
    first, second = [6, 1, 3, 2], [1, 5, 2, 4]
    _, state = rnn(x, lengths=first)
    output, (h_n, c_n) = rnn(y, state, lengths=second)
    for row, (m, n) in enumerate(zip(first, second, strict=True)):
        whole, (h_row, c_row) = rnn(torch.cat([x[:m, row], y[:n, row]]))
        for mine, true in ((output[:n, row], whole[m:]), (h_n[:, row], h_row), (c_n[:, row], c_row)):
            torch.testing.assert_close(mine, true, rtol=0, atol=TOLERANCE[torch.float64])
