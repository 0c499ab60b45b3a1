"""Samples large tensors of an answer: a gradient has millions of elements, and its golden has 128 values."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.protocol.answers import Sampled
from encoder_conformance.protocol.streamed import Array, Sink

Positions = npt.NDArray[np.int64]
_WHOLE_UP_TO = 1 << 14
"""Tensors with at most this many elements are kept whole."""


class Sampling:
    """A `Receive` that samples large tensors while they are read. It declines small ones and those of a wrong shape."""

    def __init__(self, compared: Mapping[str, tuple[tuple[int, ...], Positions]]) -> None:
        """`compared`: name → expected shape and compared positions, flat and ascending."""
        self._compared = compared
        self.samples: dict[str, Sampled] = {}

    def __call__(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Sink | None:
        expected_shape, positions = self._compared.get(name, (None, None))
        if positions is None or expected_shape != shape or prod(shape) <= _WHOLE_UP_TO:
            return None
        values = np.empty(positions.size, dtype)
        self.samples[name] = Sampled(dtype, shape, positions, values)
        return _sink(positions, values)


def _sink(positions: Positions, values: Array) -> Sink:
    read = 0

    def take(part: Array) -> None:
        nonlocal read
        begin, end = np.searchsorted(positions, (read, read + part.size))
        values[begin:end] = part[positions[begin:end] - read]
        read += part.size

    return take
