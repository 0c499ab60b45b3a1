"""Signals that end programs: Ctrl-C and its like, kept until a block is done, and the one at the end of a parent."""

import contextlib
import ctypes
import signal
import sys
import threading
from collections.abc import Callable, Generator
from types import FrameType

from encoder_conformance.platform.ending import end_at_once

INTERRUPTS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU})
"""A terminal, and `timeout`, send the first three to every process of the group; the system the last to a process that
has used up its processor time."""
_PR_SET_PDEATHSIG = 1


@contextlib.contextmanager
def deferred_interrupts() -> Generator[None]:
    """One that arrives in the block is handled at its end. In another thread than the main one nothing is deferred:
    Python handles signals in the main one alone."""
    arrived: list[int] = []

    def defer(number: int, _: FrameType | None) -> None:
        arrived.append(number)

    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: handler for number in INTERRUPTS if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, defer)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


@contextlib.contextmanager
def ended_at_once() -> Generator[None]:
    """One that arrives in the block ends the process, with status 3: for imports, which leave nothing to keep, and in
    the middle of which an exception may come out as another."""

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: handler for number in INTERRUPTS if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, end_at_once)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def ends_with_parent() -> Callable[[], None] | None:
    """For `preexec_fn`: let a program that the harness starts end with it, even if the harness is killed.

    The process is started before there are threads. None where the system cannot do it. Workers have a guard for that.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # found before the fork, after which little is safe

    def ask_for_the_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return ask_for_the_signal
