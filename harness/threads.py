"""How many threads a BLAS takes: the variables that each of the common ones reads when it is loaded."""

_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def blas_threads(count: int) -> dict[str, str]:
    """What to put into the environment of a process that is to be started."""
    return dict.fromkeys(_VARIABLES, str(count))
