"""Peak memory of a piece of work, measured in a process of its own.

The peak of a process never falls by itself, and what earlier work left in the allocator would hide what this one needs:
who wants to know starts a program (`in_child`) that does the work once inside `peak_during`.
"""

import contextlib
import ctypes
import gc
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

R = TypeVar("R")


class MeasurementFailed(RuntimeError):
    """A program that was to measure ended with an error; the message has its last line."""


@dataclass(frozen=True)
class Peak:
    """Bytes in use before some work, and the most while it ran."""

    before: int
    peak: int
    method: str


def in_child(module: str, arguments: Sequence[str], what: str) -> dict[str, Any]:
    """Run `python -m MODULE ARGUMENTS` and read the JSON object that it prints.

    Raises:
        MeasurementFailed: it failed; `what` was to be measured.
    """
    found = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True)
    if found.returncode != 0:
        reason = (found.stderr.strip() or f"exit code {found.returncode}").splitlines()[-1]
        raise MeasurementFailed(f"measuring {what} failed: {reason}")
    return json.loads(found.stdout)


def peak_during(device: str, work: Callable[[], R]) -> tuple[Peak, R]:
    """Do some work once; return its peak and what it gave.

    On a CPU the resident size before and the peak (VmHWM, set back by writing 5 to /proc/self/clear_refs; where that is
    not allowed, ru_maxrss, which can only rise); on a GPU what torch has allocated.
    """
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = work()
        return Peak(before, torch.cuda.max_memory_allocated(), "torch.cuda.max_memory_allocated"), result
    if reset_peak():
        before = resident("VmRSS")
        result = work()
        return Peak(before, resident("VmHWM"), "VmHWM, reset before"), result
    before = max_rss()
    result = work()
    return Peak(before, max_rss(), "ru_maxrss"), result


def process_peak() -> int:
    """The most this process has held so far, or since the last `reset_peak`.

    Not ru_maxrss where there is a choice: a child's begins at what its parent held when it was started.
    """
    try:
        return resident("VmHWM")
    except OSError:
        return max_rss()


def give_back() -> None:
    """Hand free memory to the system, or what is made next would find room there and not be seen."""
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
