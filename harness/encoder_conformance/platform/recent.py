"""Caches: of the objects that were used last, in memory, and on disk of what later runs use again."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
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


def cache_folder(name: str) -> Path | None:
    """`encoder-conformance/NAME` in the user's cache folder, created if necessary; None if it is not writable.

    It raises nothing. The user's cache folder is $XDG_CACHE_HOME if that is absolute, else ~/.cache.
    Example: `folder = cache_folder("my_backend")`.
    """
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
        folder = (caches if caches.is_absolute() else Path.home() / ".cache") / "encoder-conformance" / name
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None
