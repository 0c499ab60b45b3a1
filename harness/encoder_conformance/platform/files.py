"""Files and folders that are written whole or not at all."""

import contextlib
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import IO

from encoder_conformance.platform.errors import InputError


class UnwritableError(OSError):
    """A file cannot be written. `filename` is the one that was asked for."""


@contextlib.contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """A temporary file beside `path` that replaces it at the end. Readers see the old or the new file, never a part.

    A device or a pipe, such as /dev/stdout, is written to and not replaced: root could. Raises UnwritableError.
    """
    try:
        if _is_device(path):
            _say_of_wait(path)
            with path.open("wb") as file:
                yield file
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                yield file
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UnwritableError(error.errno, error.strerror or str(error), str(path)) from error


def _is_device(path: Path) -> bool:
    """Whether `path` is no regular file, or leads to one as /dev/stdout does after a redirection."""
    if path.absolute().parent in (Path("/dev"), Path("/dev/fd")):
        return path.exists()
    return path.exists() and not (path.is_file() or path.is_dir())


def _say_of_wait(path: Path) -> None:
    """A line about a pipe that nobody reads yet: it cannot be opened before."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno == errno.ENXIO and path.is_fifo():
            print(f"conform: {path}: is a pipe; waiting for somebody to read it", file=sys.stderr, flush=True)


def require_regular(path: Path, where: str, hint: str) -> None:
    """Raises InputError for a pipe or a device, which may never end; not for what is not there. `where`: the option or
    file that names it."""
    if path.exists() and not path.is_file():
        raise InputError("is no regular file", where=where, hint=hint)


def replace_file(path: Path, data: bytes) -> None:
    """Replace the content of `path` with `data` atomically."""
    with replacing(path) as file:
        file.write(data)


def make_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Make a folder of these files, name → text. Raises OSError; nothing is left then."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for name, text in files.items():
            (temporary / name).write_text(text, encoding="utf-8")
        temporary.chmod(0o755)  # mkdtemp's folder is private to its owner
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def writable(where: str, hint: str = "choose another folder") -> Generator[None]:
    """Raises InputError for what the block cannot write. `where`: the option or file that says where to write."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=where, hint=hint) from None
