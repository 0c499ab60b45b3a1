"""Faults by generator: `conform` in a forked process (forked.py), struck at one moment of what it does by itself.

A moment is one occurrence of an event of Python's own (sys.addaudithook): the third file that is opened to be written,
the last rename, the first program that is started. A fault is a signal that the process gets at that moment, or the
error that the system gives instead of doing what was asked.
"""

import errno
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import forked

SIGNALS = {"interrupt": signal.SIGINT, "end": signal.SIGTERM, "hangup": signal.SIGHUP, "kill": signal.SIGKILL}
ERRORS = {
    "read": ("EIO", "EMFILE"),
    "write": ("ENOSPC", "EIO", "EROFS"),
    "os.rename": ("EIO", "ENOSPC"),
    "os.mkdir": ("ENOSPC", "EROFS"),
    "os.remove": ("EIO",),
    "os.scandir": ("EIO",),
    "os.listdir": ("EIO",),
    "subprocess.Popen": ("EMFILE", "ENOMEM"),
    "fcntl.flock": ("EIO",),
    "os.symlink": ("EROFS",),
    "tempfile.mkdtemp": ("ENOSPC",),
    "tempfile.mkstemp": ("ENOSPC",),
    "shutil.copyfile": ("ENOSPC",),
    "socket.__new__": ("EMFILE",),
}
"""Event → what the system may say instead. `read` and `write` are both of `open`, by what a file is opened for."""
_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class Strike:
    """`fault`: a name in SIGNALS, or an error's. `number`: which occurrence of the event, from 1 on."""

    event: str
    number: int
    fault: str


def strikes(counts: Mapping[str, int]) -> Iterator[Strike]:
    """Every fault at the first, the second, the middle and the last occurrence of each event."""
    for event, count in counts.items():
        for number in sorted({1, 2, (count + 1) // 2, count} & {*range(1, count + 1)}):
            for fault in (*SIGNALS, *ERRORS[event]):
                yield Strike(event, number, fault)


def few(counts: Mapping[str, int]) -> Iterator[Strike]:
    """Of a command that takes long: an end, a kill and an error at the first and last occurrence of each event."""
    for event, count in counts.items():
        for number in sorted({1, count}):
            for fault in ("end", "kill", ERRORS[event][0]):
                yield Strike(event, number, fault)


def kind(event: str, arguments: tuple[object, ...]) -> str | None:
    """The event as it is counted; None for what no fault is made of."""
    if event != "open":
        return event if event in ERRORS else None
    path, _, flags = arguments
    if isinstance(path, int) or not isinstance(flags, int):
        return None
    return "write" if flags & _TO_WRITE else "read"


def told(words: list[str], cwd: Path, printed: Path, strike: Strike | None, seconds: float = 60) -> int | None:
    """Its status, None if it has not ended in so many seconds.

    Its events are counted in `printed`/events; what it prints is in `printed`/out and `printed`/err.
    """
    forked._server()
    process = forked.CONTEXT.Process(target=_command, args=(words, cwd, dict(os.environ), printed, strike))
    process.start()
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    return process.exitcode


def _command(words: list[str], cwd: Path, environment: dict[str, str], printed: Path, strike: Strike | None) -> None:
    counts = Counter[str]()
    begun = os.getpid()
    ready = False

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if not ready or os.getpid() != begun or (counted := kind(event, arguments)) is None:
            return
        counts[counted] += 1
        if strike is None or (counted, counts[counted]) != (strike.event, strike.number):
            return
        if strike.fault in SIGNALS:
            os.kill(begun, SIGNALS[strike.fault])
            return
        number = getattr(errno, strike.fault)
        raise OSError(number, os.strerror(number), *(str(each) for each in arguments[:1]))

    def started() -> None:
        nonlocal ready
        from encoder_conformance.commands.main import main

        ready = True
        try:
            main()
        finally:
            ready = False
            (printed / "events").write_text("\n".join(f"{name} {count}" for name, count in counts.items()))

    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for number, path in enumerate((Path(os.devnull), printed / "out", printed / "err")):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = ["conform", *words]
    sys.addaudithook(hook)
    started()


def counted(printed: Path) -> dict[str, int]:
    """Event → how often it came, of a command that nothing has struck."""
    rows = (line.split() for line in (printed / "events").read_text().splitlines())
    return {name: int(count) for name, count in rows}
