"""Describes wrong gradients of a layer whose forward values are right: often the gradient's map is at fault."""

from collections.abc import Iterator, Mapping

import numpy as np

from encoder_conformance.commands.smoke.parameter_errors import parameter_errors
from encoder_conformance.commands.smoke.round_trip import with_own_names
from encoder_conformance.diagnosis.advice import ADVICE
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.forms.needs import has_empty_row
from encoder_conformance.oracle.kinks import kinked_rows
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case

_CLOSE = 1e-2
"""A relative error far above the noise of every format used here, and far below that of a different gradient."""


def wrong_gradients(case: Case, observed: Tensors, record: Record, own: Mapping[str, str]) -> Iterator[str]:
    """A line for each gradient that does not conform, with its relation to the right one if it is recognised."""
    expected = evaluate(case, Arithmetic(np.float64), case.cotangent(kinked_rows(case))).gradients
    lost = [t.tensor for t in record.tensors if not t.conforms and not np.isfinite(observed[t.tensor]).all()]
    if lost:
        yield f"the gradients by {with_own_names((lost[0],), own)} and {len(lost) - 1} more hold NaN or infinity"
        if has_empty_row(case):
            yield ADVICE["gradient no-key"][1]
        return
    by_parameter = {name: value for name, value in expected.items() if name != "x"}
    for tensor in record.tensors:
        if tensor.conforms:
            continue
        name, gradient = tensor.tensor, observed[tensor.tensor].astype(np.float64)
        candidates = [error for error in parameter_errors(by_parameter, case.layer) if name in error.names]
        for error in candidates:
            predicted = error.apply(by_parameter)[name]
            if predicted.shape == gradient.shape and _is_close(gradient, predicted):
                yield f"the gradient by {with_own_names((name,), own)} {error.description}"
                break
        else:
            factor = _factor_text(gradient, expected[name])
            yield f"the gradient by {with_own_names((name,), own)} is {factor or 'another'}"


def _is_close(gradient: Array, predicted: Array) -> bool:
    return bool(np.abs(gradient - predicted).max() <= _CLOSE * max(np.abs(predicted).max(), 1e-30))


def _factor_text(gradient: Array, expected: Array) -> str:
    """`−1 times what it should be`, for a mean instead of a sum, or a wrong sign; "" if it is no multiple."""
    if gradient.shape != expected.shape or not np.any(expected):
        return ""
    factor = float(np.sum(gradient * expected) / np.sum(expected * expected))
    return f"{factor:.4g} times what it should be" if _is_close(gradient, factor * expected) and factor else ""
