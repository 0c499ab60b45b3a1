"""How the gradients of parameters are wrong, where the numbers forward are right: most often on the way back."""

from collections.abc import Iterator, Mapping

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic, Array
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.kinks import kinked_rows
from encoder_conformance.results import Record
from encoder_conformance.smoke.parameter_errors import parameter_errors
from encoder_conformance.smoke.round_trip import named
from encoder_conformance.spec.case import Case
from encoder_conformance.wire.frames import Tensors

_CLOSE = 1e-2
"""Far above the noise of any format that is asked here, far below what another gradient would be."""


def wrong_gradients(case: Case, observed: Tensors, record: Record, own: Mapping[str, str]) -> Iterator[str]:
    """A line for each gradient that does not conform, and what was given in its place, if that can be told."""
    right = evaluate(case, Arithmetic(np.float64), case.cotangent(kinked_rows(case))).gradients
    by_parameter = {name: value for name, value in right.items() if name != "x"}
    for tensor in record.tensors:
        if tensor.conforms:
            continue
        name, found = tensor.tensor, observed[tensor.tensor].astype(np.float64)
        wrong = [edit for edit in parameter_errors(by_parameter, case.layer) if name in edit.names]
        for edit in wrong:
            predicted = edit.made(by_parameter)[name]
            if predicted.shape == found.shape and _close(found, predicted):
                yield f"the gradient by {named((name,), own)} {edit.says}"
                break
        else:
            factor = _factor(found, right[name])
            yield f"the gradient by {named((name,), own)} is {factor or 'another'}"


def _close(found: Array, predicted: Array) -> bool:
    return bool(np.abs(found - predicted).max() <= _CLOSE * max(np.abs(predicted).max(), 1e-30))


def _factor(found: Array, right: Array) -> str:
    """`−1 times what it should be`, for the usual slips of a sum that became a mean, or of a sign."""
    if found.shape != right.shape or not np.any(right):
        return ""
    factor = float(np.sum(found * right) / np.sum(right * right))
    return f"{factor:.4g} times what it should be" if _close(found, factor * right) and factor else ""
