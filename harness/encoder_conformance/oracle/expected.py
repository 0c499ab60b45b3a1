"""The expectation of a check: golden and condition at the compared positions (rules G-1 to G-3)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import NO_ROWS
from encoder_conformance.spec.situation import Check


@dataclass(frozen=True)
class ExpectedTensor:
    """`golden` and `condition`, float64, one value for each of `positions` (flat, ascending) in `shape`."""

    shape: tuple[int, ...]
    positions: npt.NDArray[np.int64]
    golden: Array
    condition: Array


@dataclass(frozen=True)
class Expected:
    """`tensors` by key: a stage's name, or "gradient.NAME". The cotangent is zero on `kinked_rows`, [n, 2] (B-2)."""

    tensors: dict[str, ExpectedTensor]
    kinked_rows: Array


NOTHING = Expected({}, NO_ROWS)
"""The expectation of a case that is judged without a golden."""


def key(check: Check, tensor: str) -> str:
    """The key in `Expected.tensors` of a tensor in the answer to a check."""
    return f"gradient.{tensor}" if check == "gradients" else tensor
