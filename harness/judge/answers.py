"""The tensors of an answer: whole, or for a large tensor only the values at the compared positions."""

from collections.abc import Mapping
from dataclasses import dataclass
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
