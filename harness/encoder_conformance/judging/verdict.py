"""Judges an answer in σ (rules J-1 to J-5): names, then shape and dtype, then non-finite values, then numbers.

A verdict is a pure function of the answer and the expectation. It does not depend on the implementation.
"""

from collections.abc import Callable, Sequence
from math import sqrt

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from encoder_conformance.oracle.expected import Expected, ExpectedTensor, key
from encoder_conformance.protocol.answers import Answers, Observed, values_at
from encoder_conformance.spec.axes import P
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.reason import Kind, Reason
from encoder_conformance.spec.situation import Check

MOST_ROWS, MOST_COLUMNS = 16, 24
Heat = tuple[tuple[float | None, ...], ...]


def heat_map(error: P, positions: npt.NDArray[np.int64], shape: tuple[int, ...]) -> Heat:
    """The largest error in each field of a grid over the last two axes, at most 16 × 24; None where none is compared.

    `error` [P]: in σ, at the flat `positions` [P] of a tensor of this shape. Other axes are taken together.
    """
    rows, columns = (1, 1, *shape)[-2:]
    height, width = min(rows, MOST_ROWS), min(columns, MOST_COLUMNS)
    column, row = positions % columns, positions // columns % rows
    grid = np.full((height, width), -1.0)
    np.maximum.at(grid, (row * height // rows, column * width // columns), error)
    return tuple(tuple(None if value < 0 else float(f"{min(value, 1e300):.3g}") for value in line) for line in grid)


class TensorVerdict(BaseModel):
    """The verdict on one tensor: rms and maximum error in σ, and the worst element.

    `problem`: why numbers could not be compared, which is a wrong shape, a wrong dtype or a non-finite value.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    tensor: str
    conforms: bool
    rms: float | None = None
    max: float | None = None
    worst_index: tuple[int, ...] | None = None
    observed: float | None = None
    expected: float | None = None
    sigma: float | None = None
    problem: Reason | None = None
    heat: Heat = ()
    """The error by place in the first tensor of a check that does not conform (`heat_map`); () for the others."""


class Verdict(BaseModel):
    """The verdict on one check. `stage`: the first non-conforming tensor in the order of computation.

    For a check that deviates as declared, `deviations` are the observed ones, and `distance` is the rms distance, in σ,
    from the specification without them; None if numbers do not show them.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    outcome: Outcome
    rms: float | None = None
    max: float | None = None
    stage: str | None = None
    message: str = ""
    kind: Kind | None = None
    """The kind of the reason in `message`, for programs."""
    tensors: tuple[TensorVerdict, ...] = ()
    deviations: tuple[str, ...] = ()
    distance: float | None = None


Judgement = Callable[[], Verdict]
"""A deferred verdict on received answers. The next request can be sent before it is called."""


def judge(check: Check, names: tuple[str, ...], observed: Answers, expected: Expected, dtype: Format) -> Verdict:
    """Judge the answer to one check. `names`: the tensors that it must have, in the order of computation."""
    problem = _wrong_names(names, observed) if names else "it was asked for none"  # an empty answer would conform
    if problem:
        return Verdict(outcome=Outcome.ERROR, message=f"answered {check} with the wrong names: {problem}")
    pairs = [(name, observed[name], expected.tensors[key(check, name)]) for name in names]
    tensors = judge_tensors(pairs, dtype)
    first = next((tensor for tensor in tensors if not tensor.conforms), None)
    if first is None:
        return verdict_on(tensors)
    if first.rms is not None:
        heat = _heat(observed[first.tensor], expected.tensors[key(check, first.tensor)], dtype)
        tensors = tuple(t.model_copy(update={"heat": heat}) if t is first else t for t in tensors)
    return verdict_on(tensors, first.tensor, _message(first))


def verdict_on(tensors: tuple[TensorVerdict, ...], stage: str | None = None, message: str = "") -> Verdict:
    """The verdict on a check by those on its tensors. `stage`: the first that does not conform; None if all do."""
    return Verdict(
        outcome=Outcome.PASS if stage is None else Outcome.FAIL,
        rms=max((tensor.rms for tensor in tensors if tensor.rms is not None), default=None),
        max=max((tensor.max for tensor in tensors if tensor.max is not None), default=None),
        stage=stage,
        message=message,
        tensors=tensors,
    )


def judge_tensor(name: str, observed: Observed, expected: ExpectedTensor, dtype: Format) -> TensorVerdict:
    """Judge one tensor at the positions that the golden keeps."""
    return judge_tensors([(name, observed, expected)], dtype)[0]


def judge_tensors(tensors: Sequence[tuple[str, Observed, ExpectedTensor]], dtype: Format) -> tuple[TensorVerdict, ...]:
    """Judge tensors by name at the positions that their goldens keep.

    All that can be compared are compared at once: most are so small that NumPy's calls take longer than the numbers.
    """
    verdicts = {
        name: verdict for name, observed, expected in tensors if (verdict := _unlike(name, observed, expected, dtype))
    }
    comparable = [tensor for tensor in tensors if tensor[0] not in verdicts]
    if comparable:
        values = _joined([values_at(observed, expected.positions) for _, observed, expected in comparable])
        golden = _joined([expected.golden for *_, expected in comparable])
        mismatched = _mismatched(values, golden)
        error, sigma = _errors(values, golden, _joined([expected.condition for *_, expected in comparable]), dtype)
        begin = 0
        with np.errstate(over="ignore", invalid="ignore"):
            for name, _, expected in comparable:
                part = slice(begin, begin := begin + expected.golden.size)
                if mismatched is not None and mismatched[part].any():
                    verdicts[name] = _not_finite(name, values[part], mismatched[part], expected)
                else:
                    verdicts[name] = _compared(name, values[part], error[part], sigma[part], expected)
    return tuple(verdicts[name] for name, *_ in tensors)


def _unlike(name: str, observed: Observed, expected: ExpectedTensor, dtype: Format) -> TensorVerdict | None:
    """The verdict on a tensor of another shape or dtype than the expected one."""
    if observed.shape != expected.shape:
        return not_comparable(name, "shape", f"shape {list(observed.shape)} instead of {list(expected.shape)}")
    if observed.dtype != dtype.numpy:
        return not_comparable(name, "dtype", f"dtype {observed.dtype} instead of {dtype.name}")
    return None


def _not_finite(name: str, values: P, mismatched: P, expected: ExpectedTensor) -> TensorVerdict:
    at, count = int(np.flatnonzero(mismatched)[0]), int(mismatched.sum())
    text = f"{values[at]:g} at {list(_index(expected, at))} instead of {expected.golden[at]:.6g}"
    return not_comparable(name, "non-finite", f"{text} ({count} of {values.size} compared elements)")


def _compared(name: str, values: P, error: P, sigma: P, expected: ExpectedTensor) -> TensorVerdict:
    if not error.size:
        return TensorVerdict(tensor=name, conforms=True, rms=0.0, max=0.0)
    rms = sqrt(float(error @ error) / error.size)
    at = int(error.argmax())
    largest = float(error[at])
    return TensorVerdict(
        tensor=name,
        conforms=rms <= constants().rms_limit and largest <= constants().max_limit,
        rms=min(rms, _LARGEST),
        max=min(largest, _LARGEST),
        worst_index=_index(expected, at),
        observed=float(values[at]),
        expected=float(expected.golden[at]),
        sigma=float(sigma[at]),
    )


def _joined(parts: Sequence[P]) -> P:
    """The compared values of several tensors as one array, in float64."""
    return np.concatenate([part.astype(np.float64, copy=False) for part in parts])


def _errors(values: P, golden: P, condition: P, dtype: Format) -> tuple[P, P]:
    """The error in σ at each compared position, 0 where the expected value is not finite; and σ. All are float64."""
    sigma = dtype.sigma(condition)
    finite = np.isfinite(golden)
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(values - golden) / sigma
    if not finite.all():
        error[~finite] = 0.0
    return error, sigma


def _heat(observed: Observed, expected: ExpectedTensor, dtype: Format) -> Heat:
    values = values_at(observed, expected.positions).astype(np.float64)
    error, _ = _errors(values, expected.golden, expected.condition.astype(np.float64), dtype)
    return heat_map(np.nan_to_num(error, nan=0.0, posinf=_LARGEST), expected.positions, expected.shape)


def _mismatched(values: P, golden: P) -> P | None:
    """True where one is finite and the other not, or not in the same way; None where all is finite, as it mostly is."""
    finite, found = np.isfinite(golden), np.isfinite(values)
    if finite.all() and found.all():
        return None
    same = (np.isnan(values) & np.isnan(golden)) | (values == golden)  # both NaN, or the same infinity
    return np.asarray(~np.where(finite, found, same))


_LARGEST = 1e300
"""Larger errors are reported as this number: JSON has no infinity."""


def not_comparable(name: str, kind: Kind, text: str) -> TensorVerdict:
    """The verdict on a tensor whose numbers cannot be compared."""
    return TensorVerdict(tensor=name, conforms=False, problem=Reason(kind=kind, text=text))


def _message(verdict: TensorVerdict) -> str:
    if verdict.problem:
        return f"{verdict.tensor}: {verdict.problem.text}"
    assert verdict.worst_index is not None
    return (
        f"{verdict.tensor}: rms {verdict.rms:.3g} σ, max {verdict.max:.3g} σ at {list(verdict.worst_index)}: "
        f"{verdict.observed:.9g} instead of {verdict.expected:.9g} (σ {verdict.sigma:.2g})"
    )


def _wrong_names(names: tuple[str, ...], observed: Answers) -> str:
    missing, extra = [n for n in names if n not in observed], sorted(set(observed) - set(names))
    parts = [f"missing {', '.join(missing)}"] if missing else []
    return "; ".join([*parts, *([f"not asked for {', '.join(extra)}"] if extra else [])])


def _index(expected: ExpectedTensor, at: int) -> tuple[int, ...]:
    """The multi-index of one element in its tensor; np.unravel_index takes ten times as long."""
    rest, index = int(expected.positions[at]), list[int]()
    for size in reversed(expected.shape):
        rest, coordinate = divmod(rest, size)
        index.append(coordinate)
    return tuple(reversed(index))
