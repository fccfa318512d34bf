"""What a timing depends on: the CPU, its cores, the threads in use, and other work on the machine."""

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from quasirnn.tasks.run_folder import environment

# With more cores than this in use by other processes, speeds are unreliable.
BUSY = 0.3


def usable_cores() -> int:
    """Cores that this process may use, which in a container can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def busy_with_other_work() -> str | None:
    """A sentence for the user if other processes keep this machine busy, so that speeds measured now mean little.

    Threads that wait for each other, as those of an LSTM do at every step, are slowed down most.
    """
    try:
        load = os.getloadavg()[0]
    except OSError:
        return None
    cores = usable_cores()
    if load <= cores:
        return None
    return f"this machine is busy (load {load:.1f} on {cores} cores), so timings are not reliable"


def cores_in_use(seconds: float = 0.3) -> float | None:
    """How many cores other processes use while this one sleeps; None where the system does not say.

    Unlike the load average this is not affected by what ran before, an earlier benchmark for instance.
    """
    before = _cpu_ticks()
    time.sleep(seconds)
    after = _cpu_ticks()
    if before is None or after is None or after[1] == before[1]:
        return None
    return (os.cpu_count() or 1) * (after[0] - before[0]) / (after[1] - before[1])


def _cpu_ticks() -> tuple[int, int] | None:
    """Ticks of all cores since the start of the system: busy, and total."""
    try:
        user, nice, system, idle, waiting, *others = map(
            int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
        )
    except (OSError, ValueError):
        return None
    # The last of the eight is time that the host gave to other guests: not idle either.
    busy = user + nice + system + sum(others)
    return busy, busy + idle + waiting


def describe(device: str = "cpu") -> dict[str, Any]:
    """Everything that a timing depends on, before it starts."""
    import torch

    from quasirnn.ops import backends

    backend = backends.report()[device]
    in_use = cores_in_use()
    return {
        **environment(),
        "cores": usable_cores(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "device": device,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "backend": backend["backend"],
        "backend_instruction_set": backend.get("instruction_set"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "others_before": in_use,
        "began": (_cpu_ticks(), _own_seconds()),
    }


def finished(about: dict[str, Any]) -> dict[str, Any]:
    """`about` with the cores that other processes used since `describe`, and whether the machine was too busy."""
    about = dict(about)
    ticks, own = about.pop("began")
    now = _cpu_ticks()
    during = None
    if ticks is not None and now is not None and now[1] > ticks[1]:
        elapsed = (now[1] - ticks[1]) / os.sysconf("SC_CLK_TCK")  # of all cores together
        busy = (now[0] - ticks[0]) / os.sysconf("SC_CLK_TCK") - (_own_seconds() - own)
        during = max(0.0, busy / elapsed * (os.cpu_count() or 1))
    most = max(about["others_before"] or 0.0, during or 0.0)
    return {**about, "others_during": during, "busy": most > BUSY}


def _own_seconds() -> float:
    """CPU time of this process and of its finished children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
