"""Tensors that are never whole: made while they are written, or taken part by part as they are read."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

PART = 1 << 16
"""Elements of a part: half a megabyte of float64, which a processor's cache holds."""


@dataclass(frozen=True)
class Streamed:
    """A tensor that is made while it is written. `parts` makes its elements, flat, in row-major order and in `dtype`;
    each time that it is called, the same ones."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Callable[[], Iterator[Array]]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


Sink = Callable[[Array], None]
"""Takes the elements of a tensor that is read: flat parts, in row-major order. A part is not to be kept."""
Receive = Callable[[str, np.dtype[Any], tuple[int, ...]], Sink | None]
"""What takes a tensor of this name, dtype and shape, asked before any of it is read; None to have it whole."""


def parts_of(tensor: Array | Streamed) -> Iterator[Array]:
    """The elements of any tensor, flat, a part at a time."""
    if isinstance(tensor, Streamed):
        yield from tensor.parts()
        return
    flat = np.ascontiguousarray(tensor).reshape(-1)
    for begin in range(0, flat.size, PART):
        yield flat[begin : begin + PART]


def whole(tensor: Array | Streamed) -> Array:
    """The tensor as an array."""
    if not isinstance(tensor, Streamed):
        return tensor
    made, at = np.empty(tensor.shape, tensor.dtype), 0
    flat = made.reshape(-1)
    for part in tensor.parts():
        flat[at : at + part.size] = part
        at += part.size
    return made
