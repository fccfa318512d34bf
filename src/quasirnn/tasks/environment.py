"""What a run's numbers may depend on besides its settings: versions, machine, threads, back end."""

import platform
import subprocess
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from quasirnn.ops import backends


def environment() -> dict[str, Any]:
    report = backends.report()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "quasirnn": _version("quasirnn"),
        "accelerate": _version("accelerate"),
        "commit": commit(),
        "threads": torch.get_num_threads(),
        "backend": {device: details["backend"] for device, details in report.items()},
        "instruction_set": report["cpu"]["instruction_set"],
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def cpu_name() -> str:
    """The processor's name as its maker gives it, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of the sources that run, "+" appended if they differ from it; None if they are not in a work tree."""
    folder = Path(__file__).parents[3]
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=10", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
