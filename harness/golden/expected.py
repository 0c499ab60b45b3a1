"""What a case is judged against: golden and condition at the positions that are compared (rule G-1 to G-3)."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from harness import portable
from harness.oracle.condition import Expectation
from harness.spec.case import Case
from harness.spec.constants import Constants
from harness.spec.situation import Check

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ExpectedTensor:
    """`golden` and `condition`, float64, one value for each of `positions` (flat, ascending) in `shape`."""

    shape: tuple[int, ...]
    positions: npt.NDArray[np.int64]
    golden: Array
    condition: Array


@dataclass(frozen=True)
class Expected:
    """`tensors` by key: a stage's name, or "gradient.NAME". `kinked_rows` [n, 2] have a zero cotangent (B-2)."""

    tensors: dict[str, ExpectedTensor]
    kinked_rows: Array


NOTHING = Expected({}, np.zeros((0, 2), dtype=np.int64))
"""What a golden says of a case that is judged without one."""


def key(check: Check, tensor: str) -> str:
    return f"gradient.{tensor}" if check == "gradients" else tensor


def compared_tensors(case: Case) -> dict[str, tuple[tuple[int, ...], npt.NDArray[np.bool_]]]:
    """Key → its shape and where it is compared, for every tensor that the case's checks need."""
    found = {}
    for check in case.situation.checks:
        for name, compared in case.compared(check).items():
            found[key(check, name)] = compared.shape, compared
    return found


def kept_positions(
    case: Case, name: str, shape: tuple[int, ...], compared: npt.NDArray[np.bool_], constants: Constants
) -> npt.NDArray[np.int64]:
    """The compared positions of an output that is not too large; of any other tensor as many as are drawn (G-3)."""
    if name == "output" and prod(shape) <= constants.whole_output_up_to:
        return np.flatnonzero(compared)
    count = np.count_nonzero(compared)
    drawn = portable.positions(f"positions {case.golden_id} {name}", int(count), constants.sampled_positions)
    # Of a gradient all is compared: the n-th compared position is n, and a list of millions is not needed.
    return drawn if count == compared.size else np.flatnonzero(compared)[drawn]


def thin(case: Case, expectation: Expectation, constants: Constants) -> Expected:
    """Keep of a full expectation what a golden file keeps."""
    kept = {}
    for name, (shape, compared) in compared_tensors(case).items():
        at = kept_positions(case, name, shape, compared, constants)
        kept[name] = ExpectedTensor(
            shape,
            at,
            expectation.golden[name].reshape(-1)[at],
            expectation.condition[name].reshape(-1)[at],
        )
    return Expected(kept, expectation.kinked_rows)
