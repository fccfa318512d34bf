"""Virtual machines that show AMX but hide what its tiles are.

oneDNN reads the size of the tiles from CPUID leaf 1D. Some hypervisors pass on the flag `amx_tile` but not the leaf:
oneDNN then configures no tiles, and the first product in bfloat16 or int8 kills the process (SIGILL), in plain torch as
well. The next best instructions, AVX512_BF16, are right there: oneDNN is told to stop at them before its first product.
ONEDNN_MAX_CPU_ISA, set by the user, is left as it is.
"""

import os

TILE_LEAF = 0x1D
VARIABLE, BELOW_AMX = "ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16"


def hides_tiles(cpuinfo: str) -> bool:
    """Whether the first processor of /proc/cpuinfo has AMX, but no CPUID leaf that describes its tiles."""
    first = cpuinfo.partition("\n\n")[0].splitlines()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first)}
    level = fields.get("cpuid level", "")
    return "amx_tile" in fields.get("flags", "").split() and level.isdecimal() and int(level) < TILE_LEAF


def avoid_hidden_tiles() -> None:
    """Must run before oneDNN's first product."""
    if VARIABLE in os.environ:
        return
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            cpuinfo = file.read(8192)
    except OSError:  # not Linux: no such file
        return
    if hides_tiles(cpuinfo):
        os.environ[VARIABLE] = BELOW_AMX


def avoided() -> bool:
    """Whether oneDNN was told to stop below AMX."""
    return os.environ.get(VARIABLE) == BELOW_AMX
