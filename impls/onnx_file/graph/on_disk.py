"""A large model as a file: while it loads weights a runtime holds them two or three times, and in bytes here they would
be held once more."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from encoder_conformance.allocator import give_freed_memory_back

LARGE = 64 << 20
"""Bytes of a file that is given to a runtime so, and of whose sessions one is held at a time."""


@contextmanager
def on_disk(serialized: Callable[[], bytes]) -> Iterator[Path]:
    """The model, for as long as it takes to load it; what loading took is given back to the system."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(serialized())
        give_freed_memory_back()
        yield path
    give_freed_memory_back()
