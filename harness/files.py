"""Writing a file so that nobody ever reads half of one."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """A file to write into beside `path`, which takes its place at the end: a reader sees the old one or the new one,
    never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            yield file
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` in the place of what `path` holds, in one step."""
    with replacing(path) as file:
        file.write(data)
