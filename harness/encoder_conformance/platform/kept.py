"""Files that later commands take up again, in the user's cache folder: each is named by all that its content depends
on.

A file that is cut or changed is not found. Where nothing can be written, nothing is kept.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from encoder_conformance.platform.files import UnwritableError, replace_file
from encoder_conformance.platform.recent import cache_folder

_SUM = hashlib.sha256().digest_size


@dataclass(frozen=True)
class KeptFiles:
    """Contents by their keys, which are serialisable as JSON. `room`: bytes of all files together."""

    name: str
    room: int

    def get(self, key: Any) -> bytes | None:
        """The content that was put for this key."""
        path = self._path(key)
        if path is None:
            return None
        try:
            content = path.read_bytes()
            path.touch()
        except OSError:
            return None
        return content[_SUM:] if hashlib.sha256(content[_SUM:]).digest() == content[:_SUM] else None

    def put(self, key: Any, content: bytes) -> None:
        path = self._path(key)
        if path is not None:
            with contextlib.suppress(UnwritableError):
                replace_file(path, hashlib.sha256(content).digest() + content)

    def forget_oldest(self) -> None:
        """Remove the files that were not used for longest, from what is more than the room for all."""
        folder = cache_folder(self.name)
        if folder is None:
            return
        with contextlib.suppress(OSError):  # another command removes them too
            files = sorted(((each.stat(), each) for each in folder.iterdir()), key=lambda pair: -pair[0].st_mtime)
            held = 0
            for status, path in files:
                held += status.st_size
                if held > self.room:
                    path.unlink()

    def _path(self, key: Any) -> Path | None:
        folder = cache_folder(self.name)
        return folder and folder / hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


@cache
def digest_of_code(*folders: Path) -> str:
    """The digest of all Python files in some folders."""
    digest = hashlib.sha256()
    for path in sorted(_programs(folders)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _programs(folders: Iterable[Path]) -> Iterable[Path]:
    return (path for folder in folders for path in folder.rglob("*.py"))
