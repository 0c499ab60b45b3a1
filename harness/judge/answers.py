"""What an implementation answered, whole or, of a large tensor, at the positions that are compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sampled:
    """A tensor that was answered with, of which `values` were kept: one for each of `positions` (flat, ascending)."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    positions: npt.NDArray[np.int64]
    values: Array


Observed = Array | Sampled
Answers = Mapping[str, Observed]


def values_at(observed: Observed, positions: npt.NDArray[np.int64]) -> Array:
    """What was observed at these flat positions, which have to be those that were kept."""
    if not isinstance(observed, Sampled):
        return np.asarray(observed.reshape(-1)[positions])
    if not np.array_equal(positions, observed.positions):
        raise ValueError("an answer was kept at other positions than it is compared at")
    return observed.values
