"""Keeps on disk what a run may need again at its end, so that memory does not grow with the number of checks."""

import os
import pickle
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any


@dataclass(frozen=True)
class Slot:
    """Where a value lies: in parts of these `sizes`, in the room of `room` bytes at `begin`.

    `value` is itself if no disk held it.
    """

    begin: int
    sizes: tuple[int, ...]
    room: int
    value: Any = None


class Spool:
    """A temporary file of values that can be pickled; it is gone with the process. Threads may share it.

    The room of a value that was freed is used again. A value that does not fit on the disk stays in memory.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._free: list[Slot] = []
        self._end = 0
        self._lock = threading.Lock()

    def put(self, value: Any) -> Slot:
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
        with self._lock:
            slot = self._room(tuple(part.nbytes for part in parts))
            try:
                _transfer(os.pwritev, self._opened(), parts, slot.begin)
            except OSError:
                return Slot(0, (), 0, value)
            self._end = max(self._end, slot.begin + slot.room)
            return slot

    def get(self, slot: Slot) -> Any:
        """The value in a slot."""
        if not slot.room:
            return slot.value
        parts = [memoryview(bytearray(size)) for size in slot.sizes]
        with self._lock:
            _transfer(os.preadv, self._opened(), parts, slot.begin)
        return pickle.loads(parts[0], buffers=parts[1:])  # no other process can write there

    def free(self, slot: Slot) -> None:
        """Forget a value. Its slot must not be used again."""
        if slot.room:
            with self._lock:
                self._free.append(slot)

    def _opened(self) -> int:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # it is deleted with the process
        return self._file.fileno()

    def _room(self, sizes: tuple[int, ...]) -> Slot:
        """The first free room that is large enough, or the end of the file."""
        size = sum(sizes)
        for at, freed in enumerate(self._free):
            if size <= freed.room:
                del self._free[at]
                return Slot(freed.begin, sizes, freed.room)
        return Slot(self._end, sizes, size)


_LARGE = 1 << 13
"""Bytes of an array that is a part of its own."""
_AT_ONCE = 512
"""Parts of one call: the system takes 1024."""


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
