"""Batch sequences of different lengths: with `lengths`, or as a `PackedSequence` as for `nn.LSTM`.

Padding never affects the result, whatever it contains. Both ways give the same result as each sequence alone.

    python examples/variable_lengths.py [--hidden 32]
"""

import argparse

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from quasirnn import QRNN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=32)
    hidden = parser.parse_args().hidden

    torch.manual_seed(1)
    rnn = QRNN(8, hidden, bidirectional=True).eval()
    lengths = torch.tensor([3, 11, 7])
    sequences = [torch.randn(length, 8) for length in lengths.tolist()]
    # NaN in the padding shows that it is not read.
    padded = pad_sequence(sequences, padding_value=float("nan"))  # (T, B, D)

    with torch.no_grad():
        output, (h_n, _) = rnn(padded, lengths=lengths)

        packed = pack_padded_sequence(padded, lengths, enforce_sorted=False)
        packed_output, (packed_h_n, _) = rnn(packed)
        unpacked, _ = pad_packed_sequence(packed_output)

        for row, sequence in enumerate(sequences):
            alone, (h_alone, _) = rnn(sequence)  # (T, D): a sequence without a batch
            torch.testing.assert_close(output[: len(sequence), row], alone)
            torch.testing.assert_close(h_n[:, row], h_alone)
            assert not output[len(sequence) :, row].any(), "outputs past the length of a row are zero"

    torch.testing.assert_close(unpacked, output)
    torch.testing.assert_close(packed_h_n, h_n)
    print(f"lengths {lengths.tolist()}: output {tuple(output.shape)}, h_n {tuple(h_n.shape)}")
    print("lengths, PackedSequence and each sequence alone: all the same")


if __name__ == "__main__":
    main()
