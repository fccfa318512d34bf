"""Memory of a training step: the next one needs as much again."""

import ctypes

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory() -> None:
    """Has malloc keep what a step frees for the next one, where the C library can be told so.

    Tensors of many megabytes are otherwise given back to the system and cleared, page by page, when they are asked for
    again: a twelfth of a step of the paper's language model. The process then stays as large as its largest step.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    # The greatest threshold that glibc takes; what is larger than that is still mapped and returned.
    for option, value in ((_MMAP_THRESHOLD, 32 << 20), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 << 20)):
        mallopt(option, value)
