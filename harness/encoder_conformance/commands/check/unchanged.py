"""Whether files are as they were, by their sizes and times: no content is read."""

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from encoder_conformance.spec.strict import Frozen

_MOST = 5_000
"""Files at and below a folder. Of more, such as of a home folder or a data set, nobody can tell."""
_NO_SOURCE = frozenset({"__pycache__", "node_modules"})
State = tuple[int, int, int]
"""Bytes, and when content and inode last changed, in nanoseconds since 1970. What is moved to a file's place may be
older than that file, and its inode has changed later."""


class TooManyFiles(Exception):
    """At and below a folder are more files than are looked at."""


class Unchanged(Frozen):
    """Files by path, and a digest of the names in folders, as they were. None: it was not there."""

    files: dict[Path, State | None]
    names: dict[Path, str | None]

    def still(self, besides: Collection[str]) -> bool:
        """Whether all are as they were. `besides`: names of files and folders that do not count."""
        as_before = all(state_of(path) == state for path, state in self.files.items())
        return as_before and all(names_in(path, besides) == names for path, names in self.names.items())

    def older_than(self, moment: int) -> bool:
        """Whether no file has changed since a moment, in nanoseconds since 1970."""
        return all(max(state[1:]) < moment for state in self.files.values() if state is not None)


def state_of(path: Path) -> State | None:
    return _state_in(_status_of(path))


def _status_of(path: Path) -> os.stat_result | None:
    """None where it is not there."""
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def _state_in(status: os.stat_result | None) -> State | None:
    return None if status is None else (status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def names_in(folder: Path, besides: Collection[str]) -> str | None:
    """A digest of the names in a folder; None where there is none."""
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return None
    return _digest(name for name in names if name not in _NO_SOURCE and name not in besides)


def state_below(folder: Path, besides: Collection[str]) -> str:
    """A digest of the files at and below a folder, without those that are hidden, compiled, or of an environment of
    Python, and without logs: `*.log`, and those that this command prints to. Raises TooManyFiles."""
    printed = tuple(_printed_to())
    found = ((path, _status_of(path)) for path in _below(folder, besides) if path.suffix != ".log")
    left = ((path, status) for path, status in found if status is None or _file_of(status) not in printed)
    return _digest(f"{path} {_state_in(status)}" for path, status in left)


def _printed_to() -> Iterator[tuple[int, int]]:
    for stream in (1, 2):
        with suppress(OSError):  # it is closed
            yield _file_of(os.fstat(stream))


def _file_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _below(folder: Path, besides: Collection[str]) -> Iterator[Path]:
    seen = 0
    for at, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if _counts(Path(at, name), besides)]
        seen += len(files) + len(folders)
        if seen > _MOST:
            raise TooManyFiles(folder)
        yield from (Path(at, name) for name in files if not name.startswith("."))


def _counts(path: Path, besides: Collection[str]) -> bool:
    if path.name.startswith(".") or path.name in _NO_SOURCE or path.name in besides or str(path) in besides:
        return False
    return not (path / "pyvenv.cfg").exists()


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()
