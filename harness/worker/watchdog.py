"""Enforces time limits: one thread for all deadlines of a worker, since starting a thread takes as long as a check."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Watchdog:
    """Calls `on_timeout` once, from its own thread, if watched work exceeds its time limit."""

    def __init__(self, on_timeout: Callable[[], None]) -> None:
        self._on_timeout, self._changed = on_timeout, threading.Condition()
        self._deadline: float | None = None
        self._ended = self.timed_out = False
        threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def watching(self, seconds: float) -> Generator[None]:
        """Watch the work of this block, which must end within `seconds`."""
        self._set(time.monotonic() + seconds)
        try:
            yield
        finally:
            self._set(None)

    def end(self) -> None:
        """Stop watching and end the thread."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _set(self, deadline: float | None) -> None:
        with self._changed:
            self._deadline = deadline
            # A later deadline needs no notification: the thread reads it when the earlier, now void, one has passed.
            if deadline is not None and (self._wakes is None or deadline < self._wakes):
                self._changed.notify()

    _wakes: float | None = None
    """The time at which the thread wakes by itself; None if it waits for a deadline to be set."""

    def _watch(self) -> None:
        with self._changed:
            while not self._ended:
                left = None if self._deadline is None else self._deadline - time.monotonic()
                if left is not None and left <= 0:
                    self.timed_out = True
                    break
                self._wakes = self._deadline
                self._changed.wait(left)
        if self.timed_out:
            self._on_timeout()
