"""Pipes that hold more than one request: what is written ahead waits in them."""

import contextlib
import fcntl
from typing import IO

_WANTED = 1 << 20
_WHERE_UNKNOWN = 1 << 14
"""What a pipe holds at least where the system does not say: macOS' smallest."""


def widened(pipe: IO[bytes]) -> int:
    """Ask for a pipe of 1 MiB, and give the bytes that it holds at least, however they are written.

    Linux counts a pipe in pages and may leave one half empty for each write (pipe(7)): half of it is counted on.
    """
    if not hasattr(fcntl, "F_SETPIPE_SZ"):
        return _WHERE_UNKNOWN
    with contextlib.suppress(OSError):  # more than an unprivileged user may have
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _WANTED)
    return int(fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)) // 2
