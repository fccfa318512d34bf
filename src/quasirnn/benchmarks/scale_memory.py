"""Extra memory of one inference pass: python -m quasirnn.benchmarks.scale_memory T H DEVICE THREADS SEED

The resident size with the input in memory, then the peak during the pass. What the peak exceeds the start by, less the
bytes of the output, is extra. A product of the layer's size comes before it, so that torch's own libraries are loaded;
the layer itself runs for the first time.
"""

import json
import sys
from typing import Any

import torch

from quasirnn import QRNN
from quasirnn.benchmarks.memory import peak_during


def measure(T: int, H: int, device: str) -> dict[str, Any]:
    rnn = QRNN(H, H, device=device).eval()
    x = torch.randn(T, 1, H, device=device)  # random, so every page is there
    torch.mm(torch.randn(256, 2 * H, device=device), torch.randn(2 * H, 3 * H, device=device))
    with torch.no_grad():
        peak, (output, state) = peak_during(device, lambda: rnn(x))
    returned = sum(each.nbytes for each in (output, *state))
    return {
        "input_bytes": x.nbytes,
        "output_bytes": returned,
        # A small output can find room in what the allocator holds already: then nothing is seen to grow.
        "extra_bytes": max(0, peak.peak - peak.before - returned),
        "memory_method": peak.method,
    }


if __name__ == "__main__":
    T, H, device, threads, seed = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(int(seed))
    print(json.dumps(measure(int(T), int(H), device)))
