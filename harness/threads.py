"""How many threads a framework takes: its share of the processors, and the variables that a BLAS reads when loaded."""

import os

_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def blas_threads(count: int) -> dict[str, str]:
    """What to put into the environment of a process that is to be started."""
    return dict.fromkeys(_VARIABLES, str(count))


def share(workers: int) -> int:
    """The threads of each of `workers` that compute side by side. One processor is left to the parent, which judges
    meanwhile: a pool of threads that one of them is missing from waits for it, and on two processors a suite of small
    layers takes four times as long."""
    return max(1, ((os.cpu_count() or 1) - 1) // max(workers, 1))
