"""What every fault is held to: it ends within its limit and five seconds, and nothing is left of it."""

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

GRACE = 5
"""Seconds beyond a limit within which every fault has ended."""


@pytest.fixture
def within() -> Callable[[float], object]:
    """A block that is ended by an error after so many seconds and the grace. It measures nothing."""

    @contextmanager
    def limited(seconds: float) -> Generator[None]:
        def fail(*_: object) -> None:
            raise AssertionError(f"it has not ended in {seconds:g} + {GRACE} s")

        before = signal.signal(signal.SIGALRM, fail)
        signal.setitimer(signal.ITIMER_REAL, seconds + GRACE)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    return limited


@pytest.fixture
def left() -> Callable[[Path], list[int]]:
    """The processes of a file of process ids that still live."""

    def living(pids: Path) -> list[int]:
        return [int(pid) for pid in pids.read_text().split() if Path("/proc", pid).exists()] if pids.is_file() else []

    return living
