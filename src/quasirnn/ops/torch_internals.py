"""What is used of torch beyond its public interface: in this file and nowhere else (C++: csrc/torch_internals.h).

Each has a fallback for versions of torch without it, which gives the same results, more slowly;
`tests/ops/test_torch_internals.py` runs the layer on each of them. Call these as `torch_internals.name()`.

At the end: a workaround for oneDNN, torch's own library of products, on some virtual machines.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

_C: Any = torch._C
# The instruction set at which oneDNN stops, and the last one below AMX.
ONEDNN_ISA, BELOW_AMX = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16"
TILE_LEAF = 0x1D


def _is_any_autocast_enabled() -> bool:
    return any(map(torch.is_autocast_enabled, ("cpu", "cuda", "xpu")))


def _always(*arguments: Any) -> bool:
    return True


def _named_children(module: Any) -> Mapping[str, Any]:
    return dict(module.named_children())


def _named_parameters(module: Any) -> Mapping[str, Tensor | None]:
    return dict(module.named_parameters(recurse=False))


def _find_transforming() -> Callable[[], bool] | None:
    functorch: Callable[[], bool] | None = getattr(_C, "_are_functorch_transforms_active", None)
    if functorch is None or not hasattr(forward_ad, "_current_level"):
        return None
    return lambda: functorch() or forward_ad._current_level >= 0


def _find_untraced() -> Callable[[], AbstractContextManager[None]] | None:
    if not (hasattr(_C, "_get_tracing_state") and hasattr(_C, "_set_tracing_state")):
        return None

    @contextmanager
    def untraced() -> Iterator[None]:
        tracing = None if torch.compiler.is_compiling() else _C._get_tracing_state()
        if tracing is None:
            yield
            return
        _C._set_tracing_state(None)
        try:
            yield
        finally:
            _C._set_tracing_state(tracing)

    return untraced


def _find_hooks() -> Callable[[], bool] | None:
    module: Any = torch.nn.modules.module
    names = ("_global_forward_hooks", "_global_forward_pre_hooks")
    if not all(hasattr(module, name) for name in names):
        return None
    hooks, pre_hooks = (getattr(module, name) for name in names)
    return lambda: bool(hooks or pre_hooks)


def _has(*names: str) -> bool:
    """Whether `nn.Module` keeps its parts under these names."""
    return all(hasattr(torch.nn.Module(), name) for name in names)


def _modules(module: Any) -> Any:
    return module._modules


def _parameters(module: Any) -> Any:
    return module._parameters


def _hooks(module: Any) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _find_onednn_linear() -> Callable[[Tensor, Tensor], Tensor] | None:
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return None
    product: Any = torch.ops.mkldnn._linear_pointwise
    return lambda x, weight: product(x, weight, None, "none", [], "")


def _find_cpu_bfloat16() -> Callable[[], bool] | None:
    queries = [getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")]
    if None in queries:
        return None
    # On Intel's CPUs AVX512_BF16 without AMX is no faster than float32.
    return lambda: os.environ.get(ONEDNN_ISA) != BELOW_AMX and any(query() for query in queries if query is not None)


def _never() -> bool:
    return False


# Used where the private part is missing: a slower public function, or the answer that selects the general path.
# Without `untraced`, torch.jit.trace warns about the sizes that are compared.
FALLBACKS: dict[str, Callable[..., Any]] = {
    "is_tracing": torch.jit.is_tracing,  # type: ignore[attr-defined]
    "autocast_active": _is_any_autocast_enabled,
    "transforming": _always,
    "has_global_hooks": _always,
    "modules_of": _named_children,
    "parameters_of": _named_parameters,
    "has_hooks": _always,
    "below_autograd": nullcontext,
    "untraced": nullcontext,
    "cpu_has_bfloat16": _never,
}

is_tracing: Callable[[], bool] = getattr(_C, "_is_tracing", FALLBACKS["is_tracing"])
autocast_active: Callable[[], bool] = getattr(_C, "_is_any_autocast_enabled", FALLBACKS["autocast_active"])
# Whether `torch.func`, `vmap` or forward-mode differentiation is active.
transforming: Callable[[], bool] = _find_transforming() or FALLBACKS["transforming"]
# Whether a hook is registered for all modules.
has_global_hooks: Callable[[], bool] = _find_hooks() or FALLBACKS["has_global_hooks"]
# The parts of a module from where it keeps them: a single step has no time to look them up by name.
modules_of: Callable[[Any], Mapping[str, Any]] = _modules if _has("_modules") else FALLBACKS["modules_of"]
parameters_of: Callable[[Any], Mapping[str, Tensor | None]] = (
    _parameters if _has("_parameters") else FALLBACKS["parameters_of"]
)
has_hooks: Callable[[Any], bool] = _hooks if _has("_forward_hooks", "_forward_pre_hooks") else FALLBACKS["has_hooks"]
# A context in which operators skip their registered derivative, as inside an autograd function.
below_autograd: Callable[[], AbstractContextManager[Any]] = getattr(
    _C, "_AutoDispatchBelowAutograd", FALLBACKS["below_autograd"]
)
# A context for checks that compare sizes: torch.jit.trace must not record them as part of the program.
untraced: Callable[[], AbstractContextManager[None]] = _find_untraced() or FALLBACKS["untraced"]
# Whether the CPU has fast products in bfloat16: AMX, or AMD's AVX512_BF16. Without them float32 is faster.
cpu_has_bfloat16: Callable[[], bool] = _find_cpu_bfloat16() or FALLBACKS["cpu_has_bfloat16"]
# x W^T in float32 by oneDNN, the library behind nn.LSTM, to compare with; None where torch lacks it.
onednn_linear: Callable[[Tensor, Tensor], Tensor] | None = _find_onednn_linear()


def avoid_hidden_tiles() -> None:
    """Keep oneDNN off AMX on virtual machines that hide the size of its tiles; to be called before its first product.

    oneDNN reads that size from CPUID leaf 1D. Some hypervisors pass on the flag `amx_tile` but not the leaf: oneDNN
    then configures no tiles, and the first product in bfloat16 or int8 kills the process (SIGILL), in plain torch as
    well. The next best instructions, AVX512_BF16, do work. ONEDNN_MAX_CPU_ISA, if the user has set it, is not changed.
    """
    if ONEDNN_ISA in os.environ:
        return
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            cpuinfo = file.read(8192)
    except OSError:  # not Linux: no such file
        return
    if hides_tiles(cpuinfo):
        os.environ[ONEDNN_ISA] = BELOW_AMX


def hides_tiles(cpuinfo: str) -> bool:
    """Whether the first processor of /proc/cpuinfo has AMX, but no CPUID leaf that describes its tiles."""
    first = cpuinfo.partition("\n\n")[0].splitlines()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first)}
    level = fields.get("cpuid level", "")
    return "amx_tile" in fields.get("flags", "").split() and level.isdecimal() and int(level) < TILE_LEAF
