"""Which kernels are available, and if not, why.

The operators always exist; this module decides what computes them: the compiled CPU kernels, Triton on a GPU, or plain
PyTorch, which is correct everywhere and slow. Triton is imported by the first call with a GPU tensor, not with this
package.

    QUASIRNN_BACKEND=plain     use no kernels even where there are some
    QUASIRNN_KERNELS=FILE.so   load this build of the CPU kernels instead of the installed one
"""

import ctypes
import functools
import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from quasirnn.ops import plain, torch_internals


def library_path() -> str | None:
    """The compiled library of the operators, None where it was not built.

    `torch.ops.load_library` of it makes saved programs run without this package, in C++ too.
    """
    path = os.environ.get("QUASIRNN_KERNELS")
    if path is not None:
        return path
    # Not a Python module, but installed where one of this name would be.
    spec = importlib.util.find_spec("quasirnn._kernels")
    return None if spec is None else spec.origin


def _load_kernels() -> tuple[str | None, str | None]:
    """The CPU kernels, or None and the reason. Never raises: a missing kernel costs speed, not the import."""
    if os.environ.get("QUASIRNN_BACKEND", "") == "plain":
        return None, "QUASIRNN_BACKEND=plain is set"
    path = library_path()
    if path is None:
        return None, "they are not in this installation (pip install . with a C++ compiler builds them)"
    try:
        torch.ops.load_library(path)
    except (OSError, RuntimeError) as error:
        return None, f"they were built but cannot be loaded: {error}"
    return path, None


torch_internals.avoid_hidden_tiles()
kernels, reason = _load_kernels()


def _instruction_set() -> str | None:
    if kernels is None:
        return None
    name = ctypes.CDLL(kernels).quasirnn_instruction_set
    name.restype = ctypes.c_char_p
    return str(name().decode())


@functools.cache
def gpu_kernels() -> tuple[ModuleType | None, str | None]:
    """The Triton kernels, or None and the reason. Never raises. Not to be called where there is no GPU."""
    if os.environ.get("QUASIRNN_BACKEND") == "plain":
        return None, "QUASIRNN_BACKEND=plain is set"
    # AMD numbers its generations differently, and Triton runs on every card that torch supports.
    old = min(torch.cuda.get_device_capability(n) for n in range(torch.cuda.device_count())) < (7, 0)
    if old and torch.version.hip is None:
        return None, "Triton needs a GPU of compute capability 7.0 or newer"
    if importlib.util.find_spec("triton") is None:
        return None, "triton is not installed (pip install triton; torch's GPU builds for Linux bring it)"
    try:
        module = importlib.import_module("quasirnn.ops.triton_kernels")
        module.require_driver()
    except Exception as error:
        return None, f"triton is installed but does not run: {error}"
    return module, None


def register(library: torch.library.Library) -> None:
    """Compute GPU tensors with Triton if it is available; `layer` and `stack` are plain and call these."""

    def on_gpu(name: str) -> Callable[..., Any]:
        return lambda *inputs: getattr(gpu_kernels()[0] or plain, name)(*inputs)

    for name in ("recurrence", "recurrence_backward", "pool", "pool_backward"):
        library.impl(name, on_gpu(name), "CUDA")


# The registration lasts as long as this object. An implementation may be registered before its schema.
_gpu_library = torch.library.Library("quasirnn", "IMPL")
register(_gpu_library)


# Types of devices of which `warn_if_plain` has been asked: a call of an operator asks for others only.
asked: set[str] = {"meta"}


def warn_if_plain(device: torch.device) -> None:
    """Warn once per device type that the slow path is used, and why; silent if the user asked for it."""
    if device.type in asked or torch.compiler.is_compiling():
        return
    asked.add(device.type)
    # Only of the device in use: a report on the GPU may import Triton.
    describe = {"cpu": _on_cpu, "cuda": _on_cuda}.get(device.type)
    status = describe() if describe else {"backend": "plain", "reason": f"there are none for {device.type}"}
    if status["backend"] == "plain" and os.environ.get("QUASIRNN_BACKEND") != "plain":
        warnings.warn(
            f"quasirnn runs on plain PyTorch on {device.type}, many times slower than its kernels: {status['reason']}. "
            "`quasirnn doctor` says more.",
            RuntimeWarning,
            stacklevel=callers_level(),
        )


def callers_level() -> int:
    """The `stacklevel` of the code that called this package, directly or through a module of torch."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("quasirnn", "torch"):
        frame, level = frame.f_back, level + 1
    return level


def report() -> dict[str, dict[str, Any]]:
    """What runs on each device: {"cpu": {"backend", "reason", "instruction_set"}, "cuda": {"backend", "reason"}}."""
    return {"cpu": _on_cpu(), "cuda": _on_cuda()}


def _on_cpu() -> dict[str, Any]:
    return {
        "backend": "plain" if kernels is None else "kernels",
        "reason": reason,
        "instruction_set": _instruction_set(),
    }


def _on_cuda() -> dict[str, Any]:
    """AMD's cards included: torch calls them cuda too."""
    if not torch.cuda.is_available():
        return {"backend": "absent", "reason": "torch finds no GPU"}
    module, missing = gpu_kernels()
    return {"backend": "plain" if module is None else "triton", "reason": missing}
