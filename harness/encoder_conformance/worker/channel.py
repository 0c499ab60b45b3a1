"""The harness's ends of a wire: bytes in both directions, with a deadline that does not depend on the other side."""

import array
import contextlib
import fcntl
import os
import select
import termios
import time
from threading import Event

_REQUESTED_SIZE = 1 << 20
_MINIMUM_SIZE = 1 << 14
"""The smallest pipe capacity of a system without F_GETPIPE_SZ: that of macOS."""
_CHUNK = 1 << 17
"""Bytes that are read at once: less than what the allocator would get anew from the system (memory.py)."""
_SECONDS_BETWEEN_LOOKS = 1.0
"""How long a wait for the other side goes on before it looks whether the run was ended."""


class OverdueError(Exception):
    """The deadline has passed. Whatever the other side says now is too late."""


class EndedError(Exception):
    """The harness has ended this worker while it was waited for."""


class Channel:
    """Two pipes, read and written by one thread. `interrupt` may be called from any."""

    def __init__(self, requests: int, answers: int) -> None:
        """`requests` is written, `answers` is read. The channel closes neither."""
        self._requests, self._answers = requests, answers
        for descriptor in (requests, answers):
            os.set_blocking(descriptor, False)
        self.capacity = _enlarged(requests)
        _enlarged(answers)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(answers, select.POLLIN)
        self._writable.register(requests, select.POLLOUT)
        self._buffer = memoryview(b"")
        self._deadline = 0.0
        self._interrupted = Event()
        self.written = self.taken = 0
        """Bytes in each direction so far."""

    def limit(self, seconds: float) -> None:
        """Reads and writes raise OverdueError once `seconds` from now are over."""
        self._deadline = time.monotonic() + seconds

    def interrupt(self) -> None:
        """Waits raise EndedError from now on."""
        self._interrupted.set()

    def read(self, count: int) -> bytes | memoryview:
        """Up to `count` bytes, and at least one; none at the end of the stream."""
        if not self._buffer:
            self._buffer = memoryview(self._receive())
        data = self._buffer[:count]
        self._buffer = self._buffer[count:]
        self.taken += len(data)
        return data

    def write(self, data: memoryview) -> int:
        """Write some of `data` and say how much. Raises BrokenPipeError if nobody can read it."""
        while True:
            self._check_deadline()
            with contextlib.suppress(BlockingIOError):
                sent = os.write(self._requests, data)
                self.written += sent
                return sent
            self._wait(self._writable)

    def has_news(self) -> bool:
        """Whether bytes have arrived that nobody has read, or the stream has ended."""
        return bool(self._buffer or self._readable.poll(0))

    def unread(self) -> int:
        """The bytes of the requests that the other side has not read; 0 where the system does not say."""
        count = array.array("i", [0])
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._requests, termios.FIONREAD, count)
        return count[0]

    def _receive(self) -> bytes:
        while True:
            self._check_deadline()
            with contextlib.suppress(BlockingIOError):  # most often there is something, and a wait costs as much again
                return os.read(self._answers, _CHUNK)
            self._wait(self._readable)

    def _check_deadline(self) -> float:
        """The seconds that are left. Raises OverdueError where none are."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise OverdueError
        return left

    def _wait(self, poll: select.poll) -> None:
        while True:
            if poll.poll(min(self._check_deadline(), _SECONDS_BETWEEN_LOOKS) * 1000):
                return
            if self._interrupted.is_set():  # what the worker had said before can still be read
                raise EndedError


def _enlarged(pipe: int) -> int:
    """Request a pipe of 1 MiB. Returns the bytes that it can hold for any sequence of writes.

    Linux counts a pipe in pages and may leave part of a page empty for each write (pipe(7)): half of the size is sure.
    """
    if not hasattr(fcntl, "F_SETPIPE_SZ"):
        return _MINIMUM_SIZE
    with contextlib.suppress(OSError):  # an unprivileged user may not get 1 MiB
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _REQUESTED_SIZE)
    return int(fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)) // 2
