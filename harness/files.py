"""Atomic file replacement."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """A temporary file beside `path` that replaces it at the end. Readers see the old or the new file, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes) -> None:
    """Replace the content of `path` with `data` atomically."""
    with replacing(path) as file:
        file.write(data)
