"""The C library gives large arrays back to the system when they are freed.

glibc raises its threshold for that with every large array that is freed, up to 32 MiB. Goldens and answers that are
read and dropped in turn by several threads then leave their holes: a run of all cases held a fifth more.
"""

import ctypes
import sys

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
"""`mallopt`'s parameters, as <malloc.h> numbers them. One that is set stays as it is."""


def give_large_arrays_back() -> None:
    """Hold the threshold at 256 KiB, and small arrays in two arenas. Another C library is left alone."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 1 << 18)
        mallopt(_ARENA_MAX, 2)
