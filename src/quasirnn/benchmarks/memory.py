"""Peak memory of a function, measured in a fresh process: python -m quasirnn.benchmarks.memory JSON

The peak of a process never falls by itself, and memory that earlier work left in the allocator would hide what a
function needs. So `in_child` starts this program, which calls one function; that uses `peak_during`.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from quasirnn.errors import Failure

R = TypeVar("R")


class MeasurementFailed(Failure):
    """The process that was to measure memory ended with an error; the message has its last line."""


@dataclass(frozen=True)
class Peak:
    """Bytes in use before some work, and the most during it."""

    before: int
    peak: int
    method: str

    def beyond(self, name: str, returned: Iterable[Tensor]) -> dict[str, Any]:
        """The extra memory, besides what is returned in any case; `name` is the key for the size of that."""
        size = sum(each.nbytes for each in returned)
        # Small tensors can fit into memory that the allocator holds already: then nothing grows.
        extra = max(0, self.peak - self.before - size)
        return {name: size, "extra_bytes": extra, "memory_method": self.method}


def in_child(measure: Callable[..., dict[str, Any]], arguments: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Call a function of a module in a fresh process with as many threads as here.

    Args:
        measure: takes and returns what JSON can hold.
        what: what is measured, for the error message.

    Raises:
        MeasurementFailed: the process failed.
    """
    call = {
        "module": measure.__module__,
        "function": measure.__name__,
        "arguments": dict(arguments),
        "threads": torch.get_num_threads(),
    }
    child = subprocess.run([sys.executable, "-m", __name__, json.dumps(call)], capture_output=True, text=True)
    if child.returncode != 0:
        reason = (child.stderr.strip() or f"exit code {child.returncode}").splitlines()[-1]
        raise MeasurementFailed(f"measuring {what} failed: {reason}")
    result: dict[str, Any] = json.loads(child.stdout)
    return result


def peak_during(device: str, work: Callable[[], R]) -> tuple[Peak, R]:
    """Do some work once; return its peak and its result.

    On a CPU this is the peak resident size (VmHWM, reset by writing 5 to /proc/self/clear_refs; where that is not
    allowed, ru_maxrss, which can only rise); on a GPU what torch has allocated.
    """
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = work()
        return Peak(before, torch.cuda.max_memory_allocated(), "torch.cuda.max_memory_allocated"), result
    release_free_memory()
    if reset_peak():
        before = resident("VmRSS")
        result = work()
        return Peak(before, resident("VmHWM"), "VmHWM, reset before"), result
    before = max_rss()
    result = work()
    return Peak(before, max_rss(), "ru_maxrss"), result


def process_peak() -> int:
    """The peak of this process so far, or since the last `reset_peak`.

    ru_maxrss is the second choice: in a child it begins at the parent's size when the child was started.
    """
    try:
        return resident("VmHWM")
    except OSError:
        return max_rss()


def release_free_memory() -> None:
    """Return free memory to the system; otherwise what is allocated next would fit into it and not be measured."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc has it


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
    call = json.loads(sys.argv[1])
    torch.set_num_threads(call["threads"])
    measure = getattr(importlib.import_module(call["module"]), call["function"])
    print(json.dumps(measure(**call["arguments"])))
