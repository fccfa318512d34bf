"""Train on sequences of different lengths without padding, and compare the tokens per second with padded batches.

python examples/packed_sequences.py [--lengths FILE]
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from quasirnn import QRNN

ROWS = 16


def padded(rnn: QRNN, lengths: list[int]) -> Tensor:
    """A batch padded to its longest sequence."""
    x = torch.randn(max(lengths), len(lengths), rnn.input_size)
    return rnn(x, lengths=lengths)[0]


def packed(rnn: QRNN, lengths: list[int]) -> Tensor:
    """The same sequences concatenated into ROWS full rows; the last row is padded."""
    total = sum(lengths)
    T = -(-total // ROWS)
    starts = torch.zeros(T * ROWS, dtype=torch.bool)
    starts[torch.tensor([0, *lengths]).cumsum(0)[:-1]] = True
    # A sequence that is split at the end of a row continues as a new sequence.
    x = torch.randn(T, ROWS, rnn.input_size)
    return rnn(x, starts=starts.view(ROWS, T).T)[0]


def tokens_per_second(run: Callable[..., Tensor], rnn: QRNN, batches: list[list[int]]) -> float:
    run(rnn, batches[0]).sum().backward()
    begin = time.perf_counter()
    for batch in batches:
        run(rnn, batch).sum().backward()
    return sum(map(sum, batches)) / (time.perf_counter() - begin)


def one_row(rnn: QRNN, lengths: list[int]) -> Tensor:
    """The same sequences concatenated into one row, with a state for each."""
    x = torch.randn(sum(lengths), rnn.input_size)
    return rnn(x, cu_seqlens=torch.tensor([0, *lengths]).cumsum(0))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=Path, help="a file with one length per line (default: random lengths)")
    parser.add_argument("--count", type=int, default=480, help="number of sequences")
    parser.add_argument("--hidden", type=int, default=256, help="hidden size")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.lengths is None:
        lengths = (5.2 + 0.6 * torch.randn(options.count)).exp().int().clamp(10, 2000).tolist()
    else:
        lengths = [int(line) for line in options.lengths.read_text().split()][: options.count]
    rnn = QRNN(options.hidden, options.hidden, num_layers=2)
    in_order = [lengths[n : n + ROWS] for n in range(0, len(lengths), ROWS)]
    by_length = sorted(lengths)
    similar = [by_length[n : n + ROWS] for n in range(0, len(lengths), ROWS)]
    print(f"{len(lengths)} sequences, {sum(lengths):,} tokens, {options.hidden} units, forward and backward")
    for name, run, batches in (
        ("padded", padded, in_order),
        ("padded, sorted by length", padded, similar),
        ("packed into rows", packed, in_order),
        ("packed into one row", one_row, in_order),
    ):
        print(f"{name:<26} {tokens_per_second(run, rnn, batches):>9,.0f} tokens/s")


if __name__ == "__main__":
    main()
