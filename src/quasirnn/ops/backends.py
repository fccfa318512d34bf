"""Which kernels are here, and why not.

The operators exist in every case; this module only decides who computes them: the compiled CPU kernels, Triton on a GPU,
or plain PyTorch, which is right everywhere and slow.

    QUASIRNN_BACKEND=plain     use no kernels even where there are some
    QUASIRNN_KERNELS=FILE.so   load this build of the CPU kernels instead of the installed one
"""

import importlib
import importlib.util
import os
import warnings
from types import ModuleType
from typing import Any

import torch


def _load(path: str | None) -> ModuleType:
    if path is None:
        return importlib.import_module("quasirnn._kernels")
    spec = importlib.util.spec_from_file_location("quasirnn._kernels", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"QUASIRNN_KERNELS: {path} is not an extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_kernels() -> tuple[ModuleType | None, str | None]:
    """The CPU kernels, or None and the reason. Never raises: a missing kernel costs speed, not the import."""
    wanted = os.environ.get("QUASIRNN_BACKEND", "")
    if wanted == "plain":
        return None, "QUASIRNN_BACKEND=plain is set"
    try:
        return _load(os.environ.get("QUASIRNN_KERNELS")), None
    except ModuleNotFoundError:
        return None, "they were not built (pip install --no-build-isolation with a C++ compiler builds them)"
    except (ImportError, OSError, RuntimeError) as error:
        return None, f"they were built but do not load: {error}"


kernels, reason = _load_kernels()


def warn_if_plain(device: torch.device) -> None:
    """Say once per device type that the slow path is taken, and why; silent where it was asked for."""
    if device.type in _warned or torch.compiler.is_compiling():
        return
    _warned.add(device.type)
    found = report().get(device.type, {"backend": "plain", "reason": f"there are none for {device.type}"})
    if found["backend"] == "plain" and os.environ.get("QUASIRNN_BACKEND") != "plain":
        warnings.warn(
            f"quasirnn runs on plain PyTorch on {device.type}, many times slower than its kernels: {found['reason']}. "
            "`quasirnn doctor` says more.",
            RuntimeWarning,
            stacklevel=4,
        )


_warned: set[str] = {"meta"}


def report() -> dict[str, dict[str, Any]]:
    """What runs on each device: {"cpu": {"backend", "reason", "instruction_set"}, "cuda": {"backend", "reason"}}."""
    cuda = torch.cuda.is_available()
    return {
        "cpu": {
            "backend": "plain" if kernels is None else "kernels",
            "reason": reason,
            "instruction_set": None if kernels is None else kernels.instruction_set(),
        },
        "cuda": {
            "backend": "plain" if cuda else "absent",
            "reason": "there are no GPU kernels yet" if cuda else "torch sees no GPU",
        },
    }
