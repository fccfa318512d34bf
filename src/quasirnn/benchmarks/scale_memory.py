"""Extra memory of one inference pass: python -m quasirnn.benchmarks.scale_memory T H DEVICE THREADS SEED

A program of its own, because the peak of a process never falls by itself and what earlier passes left in the allocator
would hide what this one needs. On a CPU it reads the resident size with the input in memory and then the peak during
the pass (VmHWM, set back by writing 5 to /proc/self/clear_refs; where that is not allowed, ru_maxrss, which can only
rise). What the peak exceeds the start by, less the bytes of the output, is extra. A product of the layer's size comes
before it, so that torch's own libraries are loaded; the layer itself runs for the first time.
"""

import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch

from quasirnn import QRNN


def measure(T: int, H: int, device: str) -> dict[str, Any]:
    rnn = QRNN(H, H, device=device).eval()
    x = torch.randn(T, 1, H, device=device)  # random, so every page is there
    torch.mm(torch.randn(256, 2 * H, device=device), torch.randn(2 * H, 3 * H, device=device))
    with torch.no_grad():
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            output, state = rnn(x)
            peak, method = torch.cuda.max_memory_allocated(), "torch.cuda.max_memory_allocated"
        else:
            method = "VmHWM, reset before the pass" if reset_peak() else "ru_maxrss"
            before = resident("VmRSS") if method != "ru_maxrss" else max_rss()
            output, state = rnn(x)
            peak = resident("VmHWM") if method != "ru_maxrss" else max_rss()
    returned = sum(each.nbytes for each in (output, *state))
    return {
        "input_bytes": x.nbytes,
        "output_bytes": returned,
        # A small output can find room in what the allocator holds already: then nothing is seen to grow.
        "extra_bytes": max(0, peak - before - returned),
        "memory_method": method,
    }


def reset_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def resident(name: str) -> int:
    """A size from /proc/self/status, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")


def max_rss() -> int:
    # Kilobytes on Linux, bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    T, H, device, threads, seed = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(int(seed))
    print(json.dumps(measure(int(T), int(H), device)))
