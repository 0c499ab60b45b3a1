"""What a golden file keeps of a case: values at the positions that are compared, or drawn among them (rule G-3)."""

from math import prod

import numpy as np
import numpy.typing as npt

from encoder_conformance import portable
from encoder_conformance.judge.expected import Expected, ExpectedTensor, key
from encoder_conformance.oracle.condition import Expectation
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants


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
