"""Keeps on disk what a run may need again, so that memory does not grow with the number of checks."""

import os
import pickle
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any

import numpy as np

from encoder_conformance.protocol.streamed import PART, Array

LARGEST = 1 << 28
"""Bytes of tensors by key: the required cases' large layers take 171 MB in float32. Others are made each time."""
_SHARE = 4
"""They take at most a fourth of what is free: workers have temporary files too."""
_LARGE = 1 << 13
"""Bytes of an array that is a part of its own."""
_AT_ONCE = 512
"""Parts of one call: the system takes 1024."""


@dataclass(frozen=True)
class Extent:
    """The place of a value: in parts of these `sizes`, in the room of `room` bytes at `begin`.

    `value` is itself if no disk held it.
    """

    begin: int
    sizes: tuple[int, ...]
    room: int
    value: Any = None


class Spool:
    """A temporary file of values that can be pickled, and of tensors by key; it is gone with the process.

    Threads may share it. Room that was freed is used again. On a full disk a value stays in memory, and a tensor is
    made anew each time.
    """

    def __init__(self, largest: int = LARGEST) -> None:
        """`largest`: bytes of the file up to which tensors are kept."""
        self._largest = largest
        self._file: IO[bytes] | None = None
        self._free: list[Extent] = []
        self._tensors: dict[Hashable, Extent | None] = {}  # None while it is being written
        self._end = 0
        self._lock = threading.Lock()

    def put(self, value: Any) -> Extent:
        """Keep a value. The result is for `get` and `free`."""
        large: list[memoryview] = []

        def is_small(buffer: pickle.PickleBuffer) -> bool:
            data = memoryview(buffer)
            if data.nbytes < _LARGE:
                return True
            large.append(buffer.raw())
            return False

        # Large arrays are written from where they are: a copy of each would take longer than all else here.
        opening = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=is_small)
        parts = [memoryview(opening), *large]
        try:
            with self._lock:
                extent = self._reserve(tuple(part.nbytes for part in parts))
            if self._write(parts, extent.begin):
                return extent
            self.free(extent)
        except OSError:  # no file can be made
            pass
        return Extent(0, (), 0, value)

    def get(self, extent: Extent) -> Any:
        """The value that lies there."""
        if not extent.room:
            return extent.value
        parts = [memoryview(bytearray(size)) for size in extent.sizes]
        self._read(parts, extent.begin)
        return pickle.loads(parts[0], buffers=parts[1:])  # no other process can write there

    def free(self, extent: Extent) -> None:
        """Forget a value. Its extent must not be used again."""
        if extent.room:
            with self._lock:
                self._free.append(extent)

    def parts(self, key: Hashable, made: Iterable[Array], size: int, dtype: np.dtype[Any]) -> Iterator[Array]:
        """The flat parts of a tensor of `size` elements: from the file, or `made`, which are then kept.

        To read a large tensor takes a tenth of the time that drawing it again does.
        """
        extent = self._tensors.get(key)
        return self._made(key, made, size * dtype.itemsize) if extent is None else self._kept(extent, size, dtype)

    def _kept(self, extent: Extent, size: int, dtype: np.dtype[Any]) -> Iterator[Array]:
        for first in range(0, size, PART):
            part = np.empty(min(PART, size - first), dtype)
            self._read([part.view(np.uint8).data], extent.begin + first * dtype.itemsize)
            yield part

    def _made(self, key: Hashable, made: Iterable[Array], nbytes: int) -> Iterator[Array]:
        extent = self._reserve_tensor(key, nbytes)
        if extent is None:
            yield from made
            return
        at: int | None = extent.begin
        whole = False
        try:
            for part in made:
                if at is not None:
                    written = self._write([np.ascontiguousarray(part).view(np.uint8).data], at)
                    at = at + part.nbytes if written else None
                yield part
            whole = at is not None
        finally:
            if whole:
                self._tensors[key] = extent
            else:
                del self._tensors[key]
                self.free(extent)

    def _reserve_tensor(self, key: Hashable, nbytes: int) -> Extent | None:
        """Room for this tensor; None if there is none, or if another thread is writing it."""
        with self._lock, suppress(OSError):
            disk = os.fstatvfs(self._opened())
            room = min(self._largest, (disk.f_bavail * disk.f_frsize + self._end) // _SHARE)
            if key not in self._tensors and self._end + nbytes <= room:
                self._tensors[key] = None
                return self._reserve((nbytes,))
        return None

    def _reserve(self, sizes: tuple[int, ...]) -> Extent:
        """The first free room that is large enough, or the end of the file. The caller locks. Raises OSError."""
        self._opened()
        size = sum(sizes)
        for at, freed in enumerate(self._free):
            if size <= freed.room:
                del self._free[at]
                return Extent(freed.begin, sizes, freed.room)
        self._end += size
        return Extent(self._end - size, sizes, size)

    def _opened(self) -> int:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # it is deleted with the process
        return self._file.fileno()

    def _write(self, parts: Sequence[memoryview], begin: int) -> bool:
        """Whether all of them could be written."""
        with suppress(OSError):
            _transfer(os.pwritev, self._opened(), parts, begin)
            return True
        return False

    def _read(self, parts: Sequence[memoryview], begin: int) -> None:
        _transfer(os.preadv, self._opened(), parts, begin)


def _transfer(
    call: Callable[[int, list[memoryview], int], int], file: int, parts: Sequence[memoryview], begin: int
) -> None:
    """Write or read all these parts, from `begin` on. Raises OSError."""
    left = deque(part for part in parts if part.nbytes)
    while left:
        moved = call(file, list(islice(left, _AT_ONCE)), begin)
        if not moved:
            raise OSError("the file ends too early")
        begin += moved
        while left and moved >= left[0].nbytes:
            moved -= left.popleft().nbytes
        if moved:
            left[0] = left[0][moved:]
