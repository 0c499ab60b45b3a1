"""Lets a program that the harness starts end with it, even if the harness is killed. Workers have a guard for that."""

import ctypes
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def ends_with_parent() -> Callable[[], None] | None:
    """For `preexec_fn` of a process that is started before there are threads; None where the system cannot do it."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # found before the fork, after which little is safe

    def ask_for_the_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return ask_for_the_signal
