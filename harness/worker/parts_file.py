"""Large tensors in a temporary file: reading one takes a tenth of the time that drawing it again does."""

import os
import tempfile
import threading
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from typing import IO, Any

import numpy as np

from encoder_conformance.wire.streamed import PART, Array

LARGEST = 1 << 28
"""Bytes of a file: the required cases' large layers take 171 MB in float32. What does not fit is drawn each time."""
_SHARE = 4
"""A file takes at most a fourth of what is free: workers have temporary files too."""


class PartsFile:
    """Tensors by key, each written when its parts are made first. Threads may share it; it is gone with the process.

    On a full disk every tensor is made anew.
    """

    def __init__(self, largest: int = LARGEST) -> None:
        self._largest = largest
        self._file: IO[bytes] | None = None
        self._begins: dict[Hashable, int] = {}
        self._being_written = set[Hashable]()
        self._end = 0
        self._lock = threading.Lock()

    def parts(self, key: Hashable, made: Iterable[Array], size: int, dtype: np.dtype[Any]) -> Iterator[Array]:
        """The flat parts of a tensor of `size` elements: from the file, or `made`."""
        begin = self._begins.get(key)
        if begin is not None:
            return self._read(begin, size, dtype)
        return self._written(key, made, size * dtype.itemsize)

    def _read(self, begin: int, size: int, dtype: np.dtype[Any]) -> Iterator[Array]:
        assert self._file is not None
        for first in range(0, size, PART):
            part = np.empty(min(PART, size - first), dtype)
            data = part.view(np.uint8).data
            if os.preadv(self._file.fileno(), [data], begin + first * dtype.itemsize) != part.nbytes:
                raise OSError("a temporary file ends too early")
            yield part

    def _written(self, key: Hashable, made: Iterable[Array], nbytes: int) -> Iterator[Array]:
        begin = at = self._reserve(key, nbytes)
        if begin is None or at is None:
            yield from made
            return
        try:
            whole = True
            for part in made:
                whole = whole and self._write(part, at)
                at += part.nbytes
                yield part
            if whole:
                self._begins[key] = begin
        finally:
            self._being_written.discard(key)

    def _reserve(self, key: Hashable, nbytes: int) -> int | None:
        """Where this tensor can be written; None if there is no room, or if it is being written."""
        with self._lock:
            begin, end = self._end, self._end + nbytes
            if key in self._being_written or end > self._room():
                return None
            self._being_written.add(key)
            self._end = end
            return begin

    def _room(self) -> int:
        """The bytes that the file may have; 0 where there can be no file."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # it is deleted with the process
            disk = os.fstatvfs(self._file.fileno())
        except OSError:
            return 0
        return min(self._largest, (disk.f_bavail * disk.f_frsize + self._end) // _SHARE)

    def _write(self, part: Array, at: int) -> bool:
        """Whether all of it could be written."""
        assert self._file is not None
        with suppress(OSError):
            return os.pwrite(self._file.fileno(), np.ascontiguousarray(part).view(np.uint8).data, at) == part.nbytes
        return False
