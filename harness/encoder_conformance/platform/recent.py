"""A small in-memory cache of the objects that were used last."""

import json
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")


class Recent(Generic[Made]):
    """A least-recently-used cache of `kept` objects. Threads may share it.

    A run asks layers in turns, and making an object for one may take seconds: an exported model, an inference session,
    the noise of a defective layer. An adapter keeps no parameters in it: each `build` loads its own.

    Example: `self.recent = Recent[Layer](16)`, and in `build` `self.recent.get((layer, dtype), make)`.
    """

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self._made: dict[str, Made] = {}
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], Made]) -> Made:
        """The object for this key, or a new one from `make`.

        Only one `make` runs at a time; other threads wait for it. Raises TypeError for a key that is not serialisable
        as JSON, and what `make` raises; nothing is kept then.
        """
        text = json.dumps(key, sort_keys=True)
        with self._lock:
            made = self._made.pop(text, None)
            if made is None:
                made = make()
            self._made[text] = made  # the most recently used entry is the last
            if len(self._made) > self.kept:
                del self._made[next(iter(self._made))]
            return made
