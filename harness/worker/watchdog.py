"""Ends what takes too long: one thread for all deadlines of a worker, since starting one costs as much as a check."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Watchdog:
    """Calls `bite` once, from its own thread, if a watched piece of work does not end in time."""

    def __init__(self, bite: Callable[[], None]) -> None:
        self._bite, self._changed = bite, threading.Condition()
        self._deadline: float | None = None
        self._ended = self.bitten = False
        threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def watching(self, seconds: float) -> Generator[None]:
        """The work of this block has to end within so many seconds."""
        self._set(time.monotonic() + seconds)
        try:
            yield
        finally:
            self._set(None)

    def end(self) -> None:
        """Watch no more."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _set(self, deadline: float | None) -> None:
        with self._changed:
            self._deadline = deadline
            # A later deadline needs no waking: the thread finds it when the earlier one, now void, has passed.
            if deadline is not None and (self._wakes is None or deadline < self._wakes):
                self._changed.notify()

    _wakes: float | None = None
    """When the thread looks next, unless it is woken; None where it waits for a deadline."""

    def _watch(self) -> None:
        with self._changed:
            while not self._ended:
                left = None if self._deadline is None else self._deadline - time.monotonic()
                if left is not None and left <= 0:
                    self.bitten = True
                    break
                self._wakes = self._deadline
                self._changed.wait(left)
        if self.bitten:
            self._bite()
