"""The tensors of an answer: whole, or for a large tensor only the values at the compared positions."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.spec.axes import Array, P


@dataclass(frozen=True)
class Sampled:
    """A sample of a tensor in an answer: one of `values` for each of `positions` (flat, ascending)."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    positions: npt.NDArray[np.int64]
    values: P


Observed = Array | Sampled
Answers = Mapping[str, Observed]


def values_at(observed: Observed, positions: Annotated[npt.NDArray[np.int64], "P"]) -> P:
    """The observed values at these flat positions. Raises ValueError if a sample was taken at other positions."""
    if not isinstance(observed, Sampled):
        return np.asarray(observed.reshape(-1)[positions])
    if not np.array_equal(positions, observed.positions):
        raise ValueError("an answer was sampled at other positions than the compared ones")
    return observed.values


_BYTES = 12
"""Bytes of a digest: two of 10⁶ different answers have the same one with a probability of 10⁻¹⁷."""


def digest_of(answers: Answers) -> str:
    """A hexadecimal digest of the names, dtypes, shapes and (sampled) values of all tensors: equal for equal bits."""
    state = blake2b(digest_size=_BYTES)
    for name in sorted(answers):
        tensor = answers[name]
        values = tensor.values if isinstance(tensor, Sampled) else tensor
        state.update(f"{name}\0{_name(tensor.dtype)}\0{tensor.shape}\0".encode())
        state.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


@cache
def _name(dtype: np.dtype[Any]) -> str:
    """The dtype's name, which NumPy makes anew each time, more slowly than a small tensor's digest."""
    return str(dtype)
