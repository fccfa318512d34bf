"""`starts` and `cu_seqlens`: several sequences in a row equal separate calls."""

import pytest
import torch

from nn.packings import check_offsets, check_starts, gradients, weighted
from quasirnn import QRNN

pytestmark = pytest.mark.backends

FULL = pytest.mark.full


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=FULL)])
def test_guarantee_packed_sequences_equal_separate_calls(count):
    for seed in range(count):
        check_offsets(seed)


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=FULL)])
def test_starts_in_every_row_equal_separate_calls(count):
    for seed in range(count):
        check_starts(seed)


def test_cut_anywhere_a_stream_with_starts_goes_on():
    rnn = QRNN(3, 4, 2, kernel_size=3, batch_first=True, dtype=torch.float64).eval()
    x, starts = torch.randn(2, 9, 3, dtype=torch.float64), torch.rand(2, 9) < 0.3
    whole, (h, c) = rnn(x, starts=starts)
    for cut in range(1, 9):
        first, state = rnn(x[:, :cut], starts=starts[:, :cut])
        second, last = rnn(x[:, cut:], state, starts=starts[:, cut:])
        torch.testing.assert_close(torch.cat([first, second], dim=1), whole, rtol=0, atol=1e-12)
        torch.testing.assert_close(last, (h, c), rtol=0, atol=1e-12)


def test_rows_padded_on_the_left():
    """A start at the first step that counts: what stands before it, a NaN even, has no effect."""
    rnn = QRNN(3, 4, 2, kernel_size=3).eval()
    x, starts = torch.full((6, 2, 3), torch.nan), torch.zeros(6, 2, dtype=torch.bool)
    rows = [torch.randn(4, 3), torch.randn(6, 3)]
    for b, row in enumerate(rows):
        x[6 - len(row) :, b] = row
        starts[6 - len(row), b] = True
    output, (h, _) = rnn(x, starts=starts)
    for b, row in enumerate(rows):
        alone, _ = rnn(row)
        torch.testing.assert_close(output[6 - len(row) :, b], alone)
        torch.testing.assert_close(h[-1, b], alone[-1])


def test_packed_states_go_on_as_a_batch():
    rnn = QRNN(3, 4, 2, kernel_size=3).eval()
    sequences = [torch.randn(n, 3) for n in (1, 5, 2)]
    _, state = rnn(torch.cat(sequences), cu_seqlens=[0, 1, 6, 8])
    following = torch.randn(4, 3, 3)
    output, _ = rnn(following, state)
    for b, sequence in enumerate(sequences):
        whole, _ = rnn(torch.cat([sequence, following[:, b]]))
        torch.testing.assert_close(output[:, b], whole[len(sequence) :])


def test_inspect_with_starts():
    rnn = QRNN(3, 4, 2)
    x, starts = torch.randn(5, 2, 3), torch.rand(5, 2) < 0.5
    torch.testing.assert_close(rnn.inspect(x, starts=starts)["l1"]["h"], rnn.eval()(x, starts=starts)[0])


@pytest.mark.parametrize("options", [pytest.param({}, marks=FULL), {"bidirectional": True}], ids=str)
def test_exported_with_starts_and_offsets(options):
    class Packed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = QRNN(3, 4, 2, **options)

        def forward(self, x, starts, row, offsets):
            return self.rnn(x, starts=starts), self.rnn(row, cu_seqlens=offsets)

    model = Packed().eval()
    T, B, R = (torch.export.Dim(name, min=2, max=64) for name in "TBR")
    N = torch.export.Dim("N", min=3, max=64)
    offsets = torch.tensor([0, 2, 7])
    example = (torch.randn(5, 3, 3), torch.rand(5, 3) < 0.4, torch.randn(7, 3), offsets)
    exported = torch.export.export(model, example, dynamic_shapes=({0: T, 1: B}, {0: T, 1: B}, {0: R}, {0: N}))
    other = (torch.randn(9, 2, 3), torch.rand(9, 2) < 0.4, torch.randn(6, 3), torch.tensor([0, 1, 4, 6]))
    torch.testing.assert_close(exported.module()(*other), model(*other))


def test_compiled_with_starts():
    rnn = QRNN(3, 4, 2)
    compiled = torch.compile(lambda x, starts: rnn(x, starts=starts)[0], fullgraph=True, backend="aot_eager")
    x, starts = torch.randn(5, 2, 3, requires_grad=True), torch.rand(5, 2) < 0.4
    got, want = compiled(x, starts), rnn(x, starts=starts)[0]
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(gradients(rnn, weighted(got), x), gradients(rnn, weighted(want), x))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"starts": torch.zeros(2, 5).bool()}, r"QRNN: starts must have shape \(T, B\) = \(5, 2\), got \(2, 5\)"),
        ({"cu_seqlens": [0, 5]}, "cu_seqlens= needs a single row"),
        ({"cu_seqlens": [0, 5], "lengths": [5, 5]}, "leave hx, lengths, starts out"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        QRNN(3, 4)(torch.randn(5, 2, 3), **arguments)


@pytest.mark.parametrize("offsets", [[0, 4], [1, 5], [0, 3, 3, 5], [5], [0.0, 5.0], [[0, 5]]], ids=str)
def test_offsets_that_do_not_fit(offsets):
    with pytest.raises(ValueError, match="QRNN: cu_seqlens must"):
        QRNN(3, 4)(torch.randn(5, 3), cu_seqlens=offsets)
