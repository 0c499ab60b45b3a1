"""The processors of this machine: their model, and how many threads of a worker share them."""

import os
import platform
from pathlib import Path

_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def blas_threads(count: int) -> dict[str, str]:
    """The environment variables that give a new process's BLAS `count` threads."""
    return dict.fromkeys(_VARIABLES, str(count))


def share(workers: int) -> int:
    """The number of threads of each of `workers` parallel workers. One processor is left to the parent, which judges.

    Without it, a worker's thread pool waits whenever the parent occupies one of its processors. On two processors a
    suite of small layers then takes four times as long.
    """
    return max(1, ((os.cpu_count() or 1) - 1) // max(workers, 1))


def processor() -> str:
    """The model name of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
