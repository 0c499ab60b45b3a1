"""How an interrupt ends a process that has nothing to keep. It imports next to nothing: a start waits for it."""

import os
from types import FrameType

_INCOMPLETE = 3


def end_at_once(_: int, __: FrameType | None) -> None:
    """A handler of signals: says that nothing had begun, and ends with status 3."""
    try:
        os.write(2, b"conform: interrupted; nothing had begun\n")
    finally:
        os._exit(_INCOMPLETE)
