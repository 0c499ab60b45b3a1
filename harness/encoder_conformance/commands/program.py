"""The program `conform`. Until the command begins, an interrupt ends it at once: there is nothing to keep yet.

It imports next to nothing before it has said so to the system; what a command needs takes half a second.
"""

import os
import signal
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_INCOMPLETE = 3


def _end(_: int, __: FrameType | None) -> None:
    try:
        os.write(2, b"conform: interrupted; nothing had begun\n")
    finally:
        os._exit(_INCOMPLETE)


def main() -> None:
    """Run the command of this process's arguments."""
    for number in _NUMBERS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, _end)
    from encoder_conformance.commands.main import main as run

    run()


if __name__ == "__main__":
    main()
