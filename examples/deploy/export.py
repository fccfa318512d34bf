"""Compile a QRNN into a package that runs without Python: export.py PACKAGE.pt2, then see main.cpp.

Prints the network's output for a sequence in two pieces. main.cpp prints the same from the package.
"""

import sys

import torch

from quasirnn import QRNN
from quasirnn.ops import backends


def main(package: str) -> None:
    torch.manual_seed(0)
    rnn = QRNN(8, 16, num_layers=2).eval()
    x = torch.sin(torch.arange(7 * 8.0)).view(7, 1, 8)
    with torch.no_grad():
        _, state = rnn(x)  # an example of a state; zeros start a sequence
        zeros = tuple(torch.zeros_like(part) for part in state)
        time = torch.export.Dim("T", min=1, max=65536)
        program = torch.export.export(rnn, (x, zeros), dynamic_shapes=({0: time}, (None, None)))
        torch._inductor.aoti_compile_and_package(program, package_path=package)
        first, state = rnn(x[:6], zeros)
        second, _ = rnn(x[6:], state)
    for row in (*first[:, 0], *second[:, 0]):
        print(" ".join(f"{number:.6f}" for number in row.tolist()))
    print(f"package: {package}\nlibrary: {backends.library_path()}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
