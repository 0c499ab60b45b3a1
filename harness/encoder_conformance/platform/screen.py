"""Standard streams that a command can rely on, whatever it was started with: what can be shown is, and nothing that
cannot ends the command."""

import contextlib
import errno
import io
import os
import sys
from typing import TextIO

from encoder_conformance.platform.errors import MachineError

_NOBODY = frozenset({errno.EPIPE, errno.EIO})
"""The errors of a pipe whose reader has gone, and of a terminal that has."""


_ERRORS = 2


class _Screen(io.FileIO):
    """A descriptor that takes what it is given when nobody reads it any more: a verdict counts, whoever sees it. So
    does its exit status, where what is wrong cannot be said: standard error takes everything."""

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            if error.errno not in _NOBODY and self.fileno() != _ERRORS:
                raise
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)
        return memoryview(data).nbytes  # type: ignore[arg-type]


def open_standard_streams() -> None:
    """Have all three: one that was closed reads nothing and shows nothing, and no file that is opened later gets its
    number. A character that standard output's encoding has not is shown as a question mark.

    Raises MachineError where there is no /dev/null to stand in for one.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            try:
                os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            except OSError as error:
                raise MachineError(f"{os.devnull} cannot be opened: {error.strerror}") from None
            os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115
    sys.stdout, sys.stderr = _shown(sys.stdout, 1), _shown(sys.stderr, _ERRORS)


def _shown(stream: TextIO | None, number: int) -> TextIO:
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.flush()
    raw = _Screen(number, "w", closefd=False)
    by_line = number == _ERRORS or raw.isatty()
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors="replace", line_buffering=by_line)


def fits(text: str) -> bool:
    """Whether standard output can show each character of a text."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
