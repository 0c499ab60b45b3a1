"""Gives a model to a runtime: a large one from the disk.

While it loads weights a runtime holds them two or three times, and in bytes here they would be held once more.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from encoder_conformance.memory import give_freed_memory_back

Session = TypeVar("Session")
LARGE = 64 << 20
"""Bytes of a model that is given so."""


def loaded(serialized: Callable[[], bytes], load: Callable[[bytes | Path], Session], *, large: bool) -> Session:
    """`load` of the serialized model. What loading a large one took is given back to the system."""
    if not large:
        return load(serialized())
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(serialized())
        give_freed_memory_back()
        session = load(path)
    give_freed_memory_back()
    return session
