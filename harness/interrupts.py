"""Ctrl-C and its like, kept until a block is done."""

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType

INTERRUPTS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""A terminal, and `timeout`, send these to every process of the group."""


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
