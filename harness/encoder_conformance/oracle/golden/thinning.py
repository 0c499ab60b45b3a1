"""Thins an expectation to the positions that a golden file keeps: all compared ones, or a sample of them (rule G-3)."""

from math import prod

import numpy as np
import numpy.typing as npt

from encoder_conformance.oracle.condition import Expectation
from encoder_conformance.oracle.expected import Expected, ExpectedTensor, key
from encoder_conformance.spec import portable
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import Constants


def compared_tensors(case: Case) -> dict[str, tuple[tuple[int, ...], npt.NDArray[np.bool_]]]:
    """Key → shape and boolean mask of the compared elements, for every tensor of the case's checks."""
    masks = {}
    for check in case.situation.checks:
        for name, compared in case.compared(check).items():
            masks[key(check, name)] = compared.shape, compared
    return masks


def kept_positions(
    case: Case, name: str, shape: tuple[int, ...], compared: npt.NDArray[np.bool_], constants: Constants
) -> npt.NDArray[np.int64]:
    """The flat positions [P] that are kept, ascending: all compared ones of a small output, a sample of others (G-3).

    `compared`: a mask of the tensor's shape.
    """
    if name == "output" and prod(shape) <= constants.whole_output_up_to:
        return np.flatnonzero(compared)
    count = np.count_nonzero(compared)
    drawn = portable.positions(f"positions {case.golden_id} {name}", int(count), constants.sampled_positions)
    # All elements of a gradient are compared: the n-th compared position is n, so no list of millions is needed.
    return drawn if count == compared.size else np.flatnonzero(compared)[drawn]


def compared_queries(case: Case, constants: Constants) -> npt.NDArray[np.int64] | None:
    """The positions of a sequence, ascending, at which something is kept of a case that compares its output alone; None
    for all, and where another step than attention reads positions: in a stack, or where scores go by distances."""
    tensors = compared_tensors(case)
    attention, S, D = case.layer.attention, *case.x_shape[1:]
    by_distance = attention.position_bias is not None or attention.window is not None
    if [*tensors] != ["output"] or case.layer.is_stack or by_distance:
        return None
    kept = np.unique(kept_positions(case, "output", *tensors["output"], constants) // D % S)
    return kept if kept.size < S else None


def thin(case: Case, expectation: Expectation, constants: Constants) -> Expected:
    """Reduce a full expectation to the positions that a golden file keeps."""
    kept = {}
    for name, (shape, compared) in compared_tensors(case).items():
        positions = kept_positions(case, name, shape, compared, constants)
        kept[name] = ExpectedTensor(
            shape,
            positions,
            expectation.golden[name].reshape(-1)[positions],
            expectation.condition[name].reshape(-1)[positions],
        )
    return Expected(kept, expectation.kinked_rows)
