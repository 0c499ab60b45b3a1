"""The parameters of a `build` request. Large ones are drawn while they are written."""

from collections.abc import Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from encoder_conformance.implementation.task import Task
from encoder_conformance.protocol.frames import LARGE, Sendable
from encoder_conformance.protocol.spool import Spool
from encoder_conformance.protocol.streamed import Array, Streamed, parts_of
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.case_parameters import DrawnParameter, drawn
from encoder_conformance.spec.parameters import parameters_of


def parameters_to_send(task: Task) -> dict[str, Array | Streamed]:
    """Every parameter of the task's layer, in the task's dtype."""
    case, dtype = task.case, task.format.numpy
    if sum(prod(p.shape(case.layer)) for p in parameters_of(case.layer)) * dtype.itemsize < LARGE:
        return {name: value.astype(dtype, copy=False) for name, value in case.parameters().items()}
    return {name: streamed(source, source.shape, dtype) for name, source in _sources(case).items()}


def streamed(source: DrawnParameter | Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Streamed:
    """A tensor of this dtype that is cast from its source while it is written."""
    return Streamed(dtype, shape, partial(_cast, source, dtype))


def _sources(case: Case) -> dict[str, DrawnParameter | Array]:
    """Name → source of each parameter: its draw, or an array that the case holds."""
    if case.held is not None:
        return dict(case.held.as_given)
    return dict(drawn(case.layer, case.situation.parameter_exponents, case.seed))


def _cast(source: DrawnParameter | Array, dtype: np.dtype[Any]) -> Iterator[Array]:
    if not isinstance(source, DrawnParameter):
        return (part.astype(dtype, copy=False) for part in parts_of(source))
    drawn_parts = (part.astype(dtype, copy=False) for part in source.parts())
    return _DRAWN.parts((source, dtype), drawn_parts, prod(source.shape), dtype)


_DRAWN = Spool()
"""The layers of a run: several implementations build them, and each sends back what it was sent."""


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
