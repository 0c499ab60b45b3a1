"""Memory that is freed: Python's search for cycles, and what glibc's allocator gives back.

By default glibc raises its threshold for returning an array to the system with every large array that is freed, up to
32 MiB. Threads that read and drop goldens and answers then fragment the heap: a run of all cases used a fifth more
memory. Python looks for cycles whenever 700 more objects were made than freed: among the objects of an import, which
stay, that takes a tenth of it.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""`mallopt`'s parameters, as <malloc.h> numbers them. Setting one ends its automatic adjustment."""
_OBJECTS_BETWEEN_COLLECTIONS = 20_000
_OBJECTS_OF_AN_IMPORT = 1_000_000


def give_large_arrays_back() -> None:
    """Fix the threshold at 256 KiB and the number of arenas at two. No effect with another C library."""
    _mallopt({_MMAP_THRESHOLD: 1 << 18, _ARENA_MAX: 2})


def keep_large_arrays() -> None:
    """Give no array of up to 32 MiB back, nor its place: one that is as large follows, and the system would clear a
    page for every 4 KiB of it. For what evaluates a few cases many times."""
    _mallopt({_MMAP_THRESHOLD: 32 << 20, _TRIM_THRESHOLD: 256 << 20})


def _mallopt(settings: Mapping[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for parameter, value in settings.items():
            mallopt(parameter, value)


def give_freed_memory_back() -> None:
    """Return what was freed to the system, once: after work that held much more than what comes next needs.

    What holds itself in a circle is freed first.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def collect_rarely() -> None:
    """In a command, which makes few cycles and many objects that stay."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


def collect_no_more() -> None:
    """At the end of a process, with which all that is left goes."""
    gc.freeze()


def collect_from_here() -> None:
    """In an adapter, once its framework is imported (launch.py looks for no cycles until then): among later objects."""
    gc.freeze()
    gc.enable()


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """While a framework is imported or exports: of the millions of objects that it makes, few are in cycles.

    What is there at its end is looked through no more, until `collect_among_all`: the next look would take as long as
    all that were spared.
    """
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_OF_AN_IMPORT)
    try:
        yield
        gc.freeze()
    finally:
        gc.set_threshold(*before)


def collect_among_all() -> None:
    """Look for cycles among all objects again: some hold much."""
    gc.unfreeze()
