"""Judges one observation in σ (rule J-1 to J-5): names, then shape and dtype, then non-finite values, then numbers.

A pure function of the observation, the expectation and the constants: it knows no implementation.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from encoder_conformance.judge.answers import Answers, Observed, values_at
from encoder_conformance.judge.expected import Expected, ExpectedTensor, key
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.reason import Kind, Reason
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.situation import Check

Array = npt.NDArray[Any]


class TensorVerdict(BaseModel):
    """One tensor judged: error in σ, and the element that is furthest out.

    `problem` says why numbers could not be compared: another shape or dtype, or a value that is not finite.
    """

    model_config = ConfigDict(frozen=True)

    tensor: str
    conforms: bool
    rms: float | None = None
    max: float | None = None
    worst_index: tuple[int, ...] | None = None
    observed: float | None = None
    expected: float | None = None
    sigma: float | None = None
    problem: Reason | None = None


class Verdict(BaseModel):
    """One check judged. `stage` is the first tensor out of line, in the order in which they are computed.

    Where it deviates as declared, `deviations` are those that it shows, and `distance` how far it is, in σ (rms), from
    the specification without them; None where numbers say nothing of it.
    """

    model_config = ConfigDict(frozen=True)

    outcome: Outcome
    rms: float | None = None
    max: float | None = None
    stage: str | None = None
    message: str = ""
    kind: Kind | None = None
    """Of what kind the reason in `message` is, where a program asks."""
    tensors: tuple[TensorVerdict, ...] = ()
    deviations: tuple[str, ...] = ()
    distance: float | None = None


Judgement = Callable[[], Verdict]
"""What judges answers that have come, when it is called: so that the next can be asked before."""


def judge(
    check: Check,
    shown: tuple[str, ...],
    observed: Answers,
    expected: Expected,
    dtype: Format,
    constants: Constants,
) -> Verdict:
    """`shown` names the tensors that the implementation is to answer with, in the order of computation."""
    wrong = _wrong_names(shown, observed) if shown else "it was asked for none"  # an empty answer would conform
    if wrong:
        return Verdict(outcome=Outcome.ERROR, message=f"answered {check} with the wrong names: {wrong}")
    tensors = tuple(
        judge_tensor(name, observed[name], expected.tensors[key(check, name)], dtype, constants) for name in shown
    )
    out = [tensor for tensor in tensors if not tensor.conforms]
    compared = [tensor for tensor in tensors if tensor.rms is not None]
    return Verdict(
        outcome=Outcome.FAIL if out else Outcome.PASS,
        rms=max((t.rms for t in compared if t.rms is not None), default=None),
        max=max((t.max for t in compared if t.max is not None), default=None),
        stage=out[0].tensor if out else None,
        message=_message(out[0]) if out else "",
        tensors=tensors,
    )


def judge_tensor(
    name: str, observed: Observed, expected: ExpectedTensor, dtype: Format, constants: Constants
) -> TensorVerdict:
    """Compare one tensor with its golden at the positions that the golden keeps."""
    if observed.shape != expected.shape:
        return _not_comparable(name, "shape", f"shape {_shape(observed.shape)} instead of {_shape(expected.shape)}")
    if observed.dtype != dtype.numpy:
        return _not_comparable(name, "dtype", f"dtype {observed.dtype} instead of {dtype.name}")
    values = values_at(observed, expected.positions).astype(np.float64)
    finite = np.isfinite(expected.golden)
    other = ~np.where(finite, np.isfinite(values), _same_non_finite(values, expected.golden))
    if other.any():
        at, count = int(np.flatnonzero(other)[0]), int(other.sum())
        where = _index(expected, at)
        found = f"{values[at]:g} at {list(where)} instead of {expected.golden[at]:.6g}"
        return _not_comparable(name, "non-finite", f"{found} ({count} of {values.size} compared elements)")
    sigma = np.maximum(dtype.roundoff * expected.condition.astype(np.float64), dtype.smallest_normal)
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(values - expected.golden) / sigma
        if not finite.all():
            error[~finite] = 0.0
        rms = float(np.sqrt(error @ error / error.size)) if error.size else 0.0
    at = int(error.argmax()) if error.size else 0
    largest = float(error[at]) if error.size else 0.0
    return TensorVerdict(
        tensor=name,
        conforms=rms <= constants.rms_limit and largest <= constants.max_limit,
        rms=min(rms, _LARGEST),
        max=min(largest, _LARGEST),
        worst_index=_index(expected, at) if error.size else None,
        observed=float(values[at]) if error.size else None,
        expected=float(expected.golden[at]) if error.size else None,
        sigma=float(sigma[at]) if error.size else None,
    )


def _same_non_finite(values: Array, golden: Array) -> Array:
    """NaN where NaN is specified, and an infinity where that one is."""
    return np.asarray((np.isnan(values) & np.isnan(golden)) | (values == golden))


_LARGEST = 1e300
"""An error beyond this is shown as this: JSON has no infinity."""


def _not_comparable(name: str, kind: Kind, text: str) -> TensorVerdict:
    return TensorVerdict(tensor=name, conforms=False, problem=Reason(kind=kind, text=text))


def _message(out: TensorVerdict) -> str:
    if out.problem:
        return f"{out.tensor}: {out.problem.text}"
    assert out.worst_index is not None
    return (
        f"{out.tensor}: rms {out.rms:.3g} σ, max {out.max:.3g} σ at {list(out.worst_index)}: "
        f"{out.observed:.9g} instead of {out.expected:.9g} (σ {out.sigma:.2g})"
    )


def _wrong_names(shown: tuple[str, ...], observed: Answers) -> str:
    missing, extra = [n for n in shown if n not in observed], sorted(set(observed) - set(shown))
    parts = [f"missing {', '.join(missing)}"] if missing else []
    return "; ".join([*parts, *([f"not asked for {', '.join(extra)}"] if extra else [])])


def _index(expected: ExpectedTensor, at: int) -> tuple[int, ...]:
    """Where an element is in its tensor; np.unravel_index takes ten times as long for one."""
    left, index = int(expected.positions[at]), list[int]()
    for size in reversed(expected.shape):
        left, place = divmod(left, size)
        index.append(place)
    return tuple(reversed(index))


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(str(size) for size in shape) + "]"
