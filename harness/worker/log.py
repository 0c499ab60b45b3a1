"""Reads the end of a worker's log, which is never read whole."""

from pathlib import Path

_END = 1 << 16
"""Bytes, which hold a long traceback."""


def end_of_log(log: Path, begin: int = 0) -> str:
    """The last 64 KiB of a log, from its byte `begin` on; "" if there is no log."""
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        file.seek(max(file.seek(0, 2) - _END, begin))
        return file.read(_END).decode(errors="replace")
