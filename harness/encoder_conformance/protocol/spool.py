"""Keeps on disk what a run may need again, so that memory does not grow with the number of checks."""

import os
import pickle
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any

from encoder_conformance.protocol.streamed import Array

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
    """A temporary file of values that can be pickled, and of tensors by key; it is gone with its spool.

    Threads may share it. Room that was freed is used again. On a full disk a value stays in memory, and a tensor is
    made anew each time.
    """

    def __init__(self, largest: int = LARGEST) -> None:
        """`largest`: bytes of the file up to which tensors are kept."""
        self._largest = largest
        self._file: IO[bytes] | None = None
        self._free: list[Extent] = []
        self._tensors: dict[Hashable, list[Extent] | int] = {}  # the parts; its bytes while it is being written
        self._end = 0
        self._lock = threading.Lock()

    def put(self, value: Any) -> Extent:
        """Keep a value. The result is for `get` and `free`."""
        return self._stored(value) or Extent(0, (), 0, value)

    def _stored(self, value: Any) -> Extent | None:
        """The place of a value in the file; None if no disk has room for it."""
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
        extent = None
        try:
            with self._lock:
                extent = self._reserve(tuple(part.nbytes for part in parts))
            _transfer(os.pwritev, self._opened(), parts, extent.begin)
        except OSError:  # no file can be made, or the disk is full
            if extent is not None:
                self.free(extent)
            return None
        return extent

    def get(self, extent: Extent) -> Any:
        """The value that lies there."""
        if not extent.room:
            return extent.value
        parts = [memoryview(bytearray(size)) for size in extent.sizes]
        _transfer(os.preadv, self._opened(), parts, extent.begin)
        return pickle.loads(parts[0], buffers=parts[1:])  # no other process can write there

    def free(self, extent: Extent) -> None:
        """Forget a value. Its extent must not be used again."""
        if extent.room:
            with self._lock:
                self._free.append(extent)

    def parts(self, key: Hashable, made: Iterable[Array], nbytes: int) -> Iterator[Array]:
        """The flat parts of a tensor of `nbytes`: from the file, or `made`, which are then kept.

        To read a large tensor takes a tenth of the time that drawing it again does.
        """
        kept = self._tensors.get(key)
        return map(self.get, kept) if isinstance(kept, list) else self._made(key, made, nbytes)

    def _made(self, key: Hashable, made: Iterable[Array], nbytes: int) -> Iterator[Array]:
        if not self._begins(key, nbytes):
            yield from made
            return
        kept, fits, whole = list[Extent](), True, False
        try:
            for part in made:
                if extent := self._stored(part) if fits else None:
                    kept.append(extent)
                fits = extent is not None
                yield part
            whole = fits
        finally:
            if whole:
                self._tensors[key] = kept
            else:
                del self._tensors[key]
                for extent in kept:
                    self.free(extent)

    def _begins(self, key: Hashable, nbytes: int) -> bool:
        """Whether this tensor is to be written: there is room, and no other thread is writing it."""
        with self._lock, suppress(OSError):
            disk = os.fstatvfs(self._opened())
            room = min(self._largest, (disk.f_bavail * disk.f_frsize + self._end) // _SHARE)
            begun = sum(each for each in self._tensors.values() if isinstance(each, int))
            if key not in self._tensors and self._end + begun + nbytes <= room:
                self._tensors[key] = nbytes
                return True
        return False

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
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # it is deleted when it is closed
            weakref.finalize(self, self._file.close)
        return self._file.fileno()


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
