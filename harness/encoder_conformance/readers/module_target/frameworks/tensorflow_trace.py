"""What a function on TensorFlow computes inside: each operation that it runs, and what that gives."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_callbacks  # what TensorFlow's own debugger sees operations by

from encoder_conformance.protocol.steps import TracedStep
from encoder_conformance.readers.module_target.noted_steps import StepsOfObjects
from encoder_conformance.spec.axes import Array


def _numbers(tensor: Any) -> Array | None:
    return np.asarray(tensor) if tensor.dtype.is_floating else None


def _elements(tensor: Any) -> int:
    return prod(tensor.shape)


@contextmanager
def _seen(noted: StepsOfObjects) -> Generator[None]:
    """Notes each operation that runs eagerly."""

    def see(kind: Any, taken: Sequence[Any], _attributes: Any, made: Sequence[Any], *_where: Any, **_told: Any) -> None:
        tensors = [each for each in made if isinstance(each, tf.Tensor) and each.dtype != tf.resource]
        noted.called(kind.decode() if isinstance(kind, bytes) else str(kind), "", taken, tensors)

    op_callbacks.add_op_callback(see)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(see)


def traced_call(
    call: Callable[[], object], parameters: Mapping[str, Any], tensors: Mapping[str, Any]
) -> tuple[list[TracedStep], dict[str, Array]]:
    """The steps of a call of a function with `parameters` and, as inputs, `tensors`, by name; and the values [*shape]
    of floating-point numbers by the number of their step."""
    noted = StepsOfObjects(map(_elements, parameters.values()), _elements, _numbers)
    for name, value in tensors.items():
        for each in tf.nest.flatten(value):
            noted.give(each, name, "input")
    for path, tensor in parameters.items():
        noted.give(tensor, path, "parameter")
    with _seen(noted):
        call()
    return noted.steps, noted.values
