"""The bytes of tensors: those that are sent, and those that a right answer has."""

from math import prod
from pathlib import Path

from encoder_conformance.implementation.task import Task
from encoder_conformance.protocol.frames import Sendable


def size_of(tensors: Sendable | None) -> int:
    """The bytes of these tensors."""
    return sum(tensor.nbytes for tensor in (tensors or {}).values())


def size_of_answer(task: Task) -> int:
    """The bytes of the tensors of a right answer to a task."""
    shapes = task.case.expected_shapes(task.check) or {"output": task.case.x_shape}  # invariants compare outputs
    return sum(map(prod, shapes.values())) * task.format.numpy.itemsize


_UNPACKED = 16
"""Bits of a float32 for one of the file: ONNX packs weights into two bits at the least."""


def size_of_model(path: Path) -> int:
    """The most bytes that the parameters of an ONNX file can have in float32: those of the file and of the files beside
    it, where its external data are, unpacked; 0 if they cannot be read."""
    try:
        return _UNPACKED * sum(file.stat().st_size for file in path.parent.iterdir() if file.is_file())
    except OSError:
        return 0
