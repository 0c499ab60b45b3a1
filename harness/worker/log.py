"""Where a worker's log lies, and its end: a log is never read whole."""

import re
from pathlib import Path

_END = 1 << 16
"""Bytes, which hold a long traceback."""
_NOT_IN_FILE_NAMES = re.compile(r"[^\w.,=-]+")


def log_of(folder: Path, implementation: str, number: int = 1) -> Path:
    """The log of an implementation's worker, counted from 1, in a run's folder of logs."""
    name = _NOT_IN_FILE_NAMES.sub("-", implementation)
    return folder / f"{name}{'' if number == 1 else f'-{number}'}.log"


def end_of_log(log: Path, begin: int = 0) -> str:
    """The last 64 KiB of a log, from its byte `begin` on; "" if there is no log."""
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        file.seek(max(file.seek(0, 2) - _END, begin))
        return file.read(_END).decode(errors="replace")
