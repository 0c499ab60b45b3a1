"""Keeps of a large answer what is compared: a gradient has millions of elements, and its golden values of 128."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.judge.answers import Sampled
from encoder_conformance.wire.streamed import Array, Sink

Positions = npt.NDArray[np.int64]
_FEW = 1 << 14
"""Elements up to which a tensor is kept whole."""


class Sampling:
    """Takes the tensors of an answer as they are read; those of another shape than is compared it leaves whole."""

    def __init__(self, compared: Mapping[str, tuple[tuple[int, ...], Positions]]) -> None:
        """`compared`: name → its shape, and where it is compared, flat and ascending."""
        self._compared = compared
        self.found: dict[str, Sampled] = {}

    def __call__(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Sink | None:
        due, positions = self._compared.get(name, (None, None))
        if positions is None or due != shape or prod(shape) <= _FEW:
            return None
        values = np.empty(positions.size, dtype)
        self.found[name] = Sampled(dtype, shape, positions, values)
        return _sink(positions, values)


def _sink(positions: Positions, values: Array) -> Sink:
    read = 0

    def take(part: Array) -> None:
        nonlocal read
        begin, end = np.searchsorted(positions, (read, read + part.size))
        values[begin:end] = part[positions[begin:end] - read]
        read += part.size

    return take
