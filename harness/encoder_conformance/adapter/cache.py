"""A cache folder on disk for compiled programs and exported models that later runs use again."""

import os
from pathlib import Path


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
