"""Random packings of sequences into rows, checked against separate calls: outputs, states and gradients in float64."""

import itertools
import random

import torch

from quasirnn import QRNN


def some_network(draw: random.Random) -> QRNN:
    """Any options; in eval, where zoneout is its expectation and does not depend on the place."""
    layers = draw.randint(1, 3)
    return QRNN(
        draw.randint(1, 4),
        draw.randint(1, 6),
        layers,
        bias=draw.random() < 0.8,
        bidirectional=draw.random() < 0.4,
        kernel_size=[draw.randint(1, 4) for _ in range(layers)],
        pooling=draw.choice(["f", "fo", "ifo"]),
        zoneout=draw.choice([0.0, 0.3]),
        dense=draw.random() < 0.3,
        causal=draw.random() < 0.7,
        dtype=torch.float64,
    ).eval()


def gradients(rnn: QRNN, loss: torch.Tensor, *inputs: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(loss, [*inputs, *rnn.parameters()]))


def weighted(x: torch.Tensor) -> torch.Tensor:
    return (x * torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view_as(x)).sum()


def check_offsets(seed: int) -> None:
    """Sequences one after the other in a single row, by `cu_seqlens`."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    rnn = some_network(draw)
    sizes = [draw.randint(1, 6) for _ in range(draw.randint(1, 5))]
    x = torch.randn(sum(sizes), rnn.input_size, dtype=torch.float64, requires_grad=True)
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    output, (h, c) = rnn(x, cu_seqlens=offsets)
    alone = [rnn(part) for part in x.split(sizes)]
    wanted = torch.cat([out for out, _ in alone])
    wanted_h, wanted_c = (torch.stack([state[n] for _, state in alone], dim=1) for n in range(2))
    for got, want in ((output, wanted), (h, wanted_h), (c, wanted_c)):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12, msg=lambda text: f"seed {seed}: {text}")
    losses = [weighted(a) + weighted(b) + weighted(d) for a, b, d in ((output, h, c), (wanted, wanted_h, wanted_c))]
    for got, want in zip(*(gradients(rnn, loss, x) for loss in losses), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-11, msg=lambda text: f"seed {seed}: {text}")


def check_starts(seed: int) -> None:
    """Rows with different starts, with lengths and a state: its first sequence goes on, the last one is handed on."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    rnn = some_network(draw)
    T, B = draw.randint(1, 12), draw.randint(1, 3)
    x = torch.randn(T, B, rnn.input_size, dtype=torch.float64, requires_grad=True)
    starts = torch.rand(T, B) < 0.3
    lengths = torch.tensor([draw.randint(1, T) for _ in range(B)]) if draw.random() < 0.5 else None
    state = None
    if rnn.causal and not rnn.bidirectional and draw.random() < 0.5:
        with torch.no_grad():
            state = rnn(torch.randn(5, B, rnn.input_size, dtype=torch.float64))[1]
    output, (h, c) = rnn(x, state, lengths=lengths, starts=starts)
    wanted = torch.zeros_like(output)
    for b in range(B):
        end = T if lengths is None else int(lengths[b])
        cuts = [t for t in range(1, end) if starts[t, b]]
        bounds = [0, *cuts, end]
        for begin, stop in itertools.pairwise(bounds):
            goes_on = begin == 0 and not starts[0, b] and state is not None
            before = tuple(part[:, b : b + 1] for part in state) if goes_on else None
            out, last = rnn(x[begin:stop, b : b + 1], before)
            wanted[begin:stop, b] = out[:, 0]
        if not rnn.bidirectional:
            torch.testing.assert_close((h[:, b], c[:, b]), (last[0][:, 0], last[1][:, 0]), rtol=0, atol=1e-12)
    torch.testing.assert_close(output, wanted, rtol=0, atol=1e-12, msg=lambda text: f"seed {seed}: {text}")
    for got, want in zip(*(gradients(rnn, weighted(out), x) for out in (output, wanted)), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-11, msg=lambda text: f"seed {seed}: {text}")
