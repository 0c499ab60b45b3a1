"""Ends somebody's code that does not end by itself: a line of theirs can be told only from inside."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.readers.module_target.errors import BadTarget, last_frames

_KIND: FindingKind = "takes-too-long"
_AGAIN = 1.0
"""Seconds until it is said again to code that caught it, by a bare `except`."""


class TookTooLong(BaseException):
    """The time is over. No Exception, which somebody's code would catch and go on."""


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Raise TookTooLong in the main thread where it is after so many seconds; None: it may take any time.

    Inside another the innermost counts. What a call of C does is not cut short.
    """
    if seconds is None:
        yield
        return

    def say(signal_number: int, frame: FrameType | None) -> None:
        raise TookTooLong(f"after {seconds:g} s")

    begin, handler = time.monotonic(), signal.signal(signal.SIGALRM, say)
    around, _ = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        left = max(around - (time.monotonic() - begin), _AGAIN) if around else 0.0
        signal.setitimer(signal.ITIMER_REAL, left, _AGAIN)
        signal.signal(signal.SIGALRM, handler)


def too_long(what: str, error: TookTooLong, *otherwise: str) -> BadTarget:
    """What has no end, with the line in which it stood, and what a user does: `otherwise`, or allow it more time."""
    said = last_frames(error).removeprefix(f"{type(error).__name__}: ")
    return BadTarget(f"{what} {said}", "; or ".join([*otherwise, "--timeout gives it longer"]), _KIND)
