"""Process a sequence as it arrives: pass the returned state back to continue it.

The state contains the cells and the last inputs of the convolution. Pieces of any size, down to single steps, give the
same output as the whole sequence.

    python examples/streaming.py [--length 200]
"""

import argparse

import torch

from quasirnn import QRNN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=200)
    length = parser.parse_args().length

    torch.manual_seed(1)
    rnn = QRNN(16, 32, num_layers=2, kernel_size=3).eval()
    signal = torch.randn(length, 1, 16)  # (T, B, D)

    with torch.no_grad():
        whole, _ = rnn(signal)

        pieces, state, start = [], None, 0
        while start < length:
            size = int(torch.randint(1, 10, ()))  # whatever has arrived
            output, state = rnn(signal[start : start + size], state)
            pieces.append(output)
            start += size

        steps, state = [], None
        for t in range(length):
            output, state = rnn(signal[t : t + 1], state)
            steps.append(output)

    print(f"in {len(pieces)} pieces: largest difference from the whole {(torch.cat(pieces) - whole).abs().max():.1e}")
    print(f"in {len(steps)} steps: largest difference from the whole {(torch.cat(steps) - whole).abs().max():.1e}")
    torch.testing.assert_close(torch.cat(pieces), whole)
    torch.testing.assert_close(torch.cat(steps), whole)


if __name__ == "__main__":
    main()
