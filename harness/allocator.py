"""Has glibc's allocator return large arrays to the system when they are freed.

By default glibc raises the threshold for this with every large array that is freed, up to 32 MiB. Threads that read and
drop goldens and answers then fragment the heap: a run of all cases used a fifth more memory.
"""

import ctypes
import gc
import sys

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""`mallopt`'s parameters, as <malloc.h> numbers them. Setting one ends its automatic adjustment."""


def give_large_arrays_back() -> None:
    """Fix the threshold at 256 KiB and the number of arenas at two. No effect with another C library."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 18)
        mallopt(_ARENA_MAX, 2)


def give_freed_memory_back() -> None:
    """Return what was freed to the system, once: after work that held much more than what comes next needs.

    What holds itself in a circle is freed first.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
