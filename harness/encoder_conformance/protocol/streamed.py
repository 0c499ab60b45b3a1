"""Streamed tensors: computed while they are written, or consumed in parts while they are read."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

PART = 1 << 14
"""Elements per part: 128 kB of float64, which fits a cache, and which an allocator keeps for the next part."""


@dataclass(frozen=True)
class Streamed:
    """A tensor that is computed while it is written.

    `parts` yields its elements as flat arrays in `dtype`, in row-major order. Every call yields the same elements.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Callable[[], Iterator[Array]]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


Sink = Callable[[Array], None]
"""Consumes the flat parts of a tensor while it is read, in row-major order. It must not keep a part."""
Receive = Callable[[str, np.dtype[Any], tuple[int, ...]], Sink | None]
"""Chooses the sink of a tensor by name, dtype and shape, before its data are read; None to read it whole."""


def parts_of(tensor: Array | Streamed) -> Iterator[Array]:
    """Yield the elements of a tensor as flat parts."""
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
    return filled(tensor.shape, tensor.dtype, tensor.parts())


def filled(shape: tuple[int, ...], dtype: np.dtype[Any], parts: Iterable[Array]) -> Array:
    """The tensor of these flat parts."""
    array, at = np.empty(shape, dtype), 0
    flat = array.reshape(-1)
    for part in parts:
        flat[at : at + part.size] = part
        at += part.size
    return array
