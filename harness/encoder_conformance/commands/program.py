"""The program `conform`. Until the command begins, an interrupt ends it at once: there is nothing to keep yet.

It imports next to nothing before it has said so to the system; what a command needs takes half a second.
"""

import signal

from encoder_conformance.platform.ending import end_at_once

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)


def main() -> None:
    """Run the command of this process's arguments."""
    for number in _NUMBERS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
            signal.signal(number, end_at_once)
    from encoder_conformance.commands.main import main as run

    run()


if __name__ == "__main__":
    main()
