"""Larger pipes, in which requests that are sent ahead can wait."""

import contextlib
import fcntl

_REQUESTED_SIZE = 1 << 20
_MINIMUM_SIZE = 1 << 14
"""The smallest pipe capacity of a system without F_GETPIPE_SZ: that of macOS."""


def enlarge_pipe(pipe: int) -> int:
    """Request a pipe of 1 MiB. Returns the bytes that it can hold for any sequence of writes.

    Linux counts a pipe in pages and may leave part of a page empty for each write (pipe(7)): half of the size is sure.
    """
    if not hasattr(fcntl, "F_SETPIPE_SZ"):
        return _MINIMUM_SIZE
    with contextlib.suppress(OSError):  # an unprivileged user may not get 1 MiB
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _REQUESTED_SIZE)
    return int(fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)) // 2
