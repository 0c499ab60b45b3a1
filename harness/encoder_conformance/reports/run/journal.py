"""The records of a run in the order in which they were judged: a line of JSON each, appended and never changed.

Of one check the last line counts: a worker that commits a fault after its answer has a second one.
"""

import contextlib
import os
import time
from array import array
from pathlib import Path

NAME = "records.jsonl"
_SECONDS_BETWEEN_SYNCS = 2.0
"""How much of a run a machine that stops may lose. A killed process loses nothing."""


class Journal:
    """Appends lines to a file, by number, and reads them back. Only the place of each line stays in memory.

    Nothing raises after a write failed: `problem` says why, the file ends with its last whole line, and whatever comes
    later is not kept.
    """

    def __init__(self, path: Path, numbers: int) -> None:
        """Start the file anew for lines of the numbers 0 … `numbers` - 1."""
        self.path, self.problem = path, ""
        self._begins, self._sizes = array("q", [-1]) * numbers, array("l", [0]) * numbers
        self._end, self._synced = 0, time.monotonic()
        self._file = -1
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        except OSError as error:
            self._fail(error)

    def append(self, number: int, line: bytes) -> None:
        """Append `line`, which has no line break. The system has it when this returns."""
        if self.problem:
            return
        try:
            left = line + b"\n"
            while left:  # a disk that is full takes a part, and says so at the next
                left = left[os.write(self._file, left) :]
        except OSError as error:
            self._fail(error)
            return
        self._begins[number], self._sizes[number] = self._end, len(line)
        self._end += len(line) + 1
        if time.monotonic() > self._synced + _SECONDS_BETWEEN_SYNCS:
            self.sync()

    def read(self, number: int) -> bytes | None:
        """The line of this number; None if there is none."""
        begin = self._begins[number]
        return None if begin < 0 else os.pread(self._file, self._sizes[number], begin)

    def sync(self) -> None:
        """Have the disk hold what the system holds."""
        try:
            if not self.problem:
                os.fsync(self._file)
        except OSError as error:
            self._fail(error)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Close the file, which stays. Nothing can be appended or read afterwards."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _fail(self, error: OSError) -> None:
        self.problem = f"{self.path}: {error.strerror}"
        if self._file >= 0:
            with contextlib.suppress(OSError):  # a pipe has no length
                os.ftruncate(self._file, self._end)
