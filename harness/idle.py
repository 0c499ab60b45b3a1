"""A queue whose reader has other work while nothing comes."""

import contextlib
import queue
from collections.abc import Iterator
from typing import Generic, TypeVar

_IDLE = 0.02
"""Seconds without an item after which the reader is idle: a worker imports, compiles or exports."""

Item = TypeVar("Item")


class IdleQueue(queue.Queue[Item], Generic[Item]):
    """`next` gets items in their order, as `get` does; while none comes, it takes steps of other work."""

    steps: Iterator[None] = iter(())
    """The other work. A step takes 3 to 50 ms, and no more, since an item that comes meanwhile waits for its end."""

    def next(self) -> Item:
        """The next item. Once none has come for a moment, steps are taken until one does."""
        with contextlib.suppress(queue.Empty):
            return self.get(timeout=_IDLE)
        for _ in self.steps:
            with contextlib.suppress(queue.Empty):
                return self.get_nowait()
        return self.get()
