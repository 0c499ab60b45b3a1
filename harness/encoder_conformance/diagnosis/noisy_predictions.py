"""Tests what a noisy deviation, which is predicted in size only, predicts beside its size (rule V-4).

Size alone says little: whatever is wrong by about as much has it. But given the stage before, a product of rounded
operands has one value; a result in a narrow format lies on that format's grid (and where it is the right one, rounded,
`casts` says so); dropout leaves an element as it is,
times one scale, or makes it 0; and a variance from E[x²] − E[x]² is a number for each row that is off by what float32
rounds E[x²] by. None of these is so by chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoder_conformance.diagnosis.in_sigma import conforms, in_sigma
from encoder_conformance.judging.checks.training.statistics import smaller_tail
from encoder_conformance.oracle.arithmetic import FLOAT32_ROUNDOFF
from encoder_conformance.oracle.forms import NOISY
from encoder_conformance.oracle.forms.forward_only import narrowed
from encoder_conformance.oracle.forms.softmax import WITHOUT_LARGEST
from encoder_conformance.spec.axes import Array, D, P, Rows
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.steps import stage_of

ENOUGH = 8
"""Values that have to bear a prediction out. On a narrow format's grid one lies by chance once in 2^13 or more."""
_CHANCE = 1e-6
"""The probability below which a number of dropped elements is not that of the rate that their scale shows."""
_FAR = 1000.0
"""The size, in σ, of an element of which it can be said whether it was scaled or dropped."""
_ALIKE, _BY_NO_CHANCE = 0.3, 8.0
"""The cosine between two errors, and that times the root of their number, from which they have one source: of unlike
ones the second is the size of 1."""
_TIMES = 2.0
"""Times an error that is predicted, at most, which what it makes can be: a coarser rounding errs by more."""
_BITS = {"bfloat16": 8, "float16": 11, "tf32": 11, "float32": 24}
_ODD = 0.125
"""The part, at least, of a format's own values that have its last bit: half of them, and none of a coarser grid's."""
_MOST = 2 / 3
"""The part of the values that has to be nearer to what is predicted: a second rounding of a result turns some over."""
_FORMAT_OF = dict.fromkeys(WITHOUT_LARGEST, "float32")
DROPOUTS = frozenset({"dropout", "dropout-broadcast"})


@dataclass(frozen=True)
class NoisyStage:
    """One stage at its compared positions: `observed`; `plain`, without what is noisy there; `predicted`, with it, and
    rounded as the oracle rounds. `index` [P, axes] says where. `rows`: those of a norm, if it is one."""

    observed: P
    plain: P
    predicted: P
    sigma: P
    index: Array
    rows: "NormRows | None"


@dataclass(frozen=True)
class NormRows:
    """A norm, row by row, [rows, D]: its input `x`, what was observed, what is right and its σ; the shift, and ε."""

    x: Rows
    observed: Rows
    right: Rows
    sigma: Rows
    shift: D
    epsilon: float


@dataclass(frozen=True)
class PredictionResult:
    """Whether a prediction came true. `errors`, in σ, where it is one of values, and so says more than a size."""

    true: bool
    errors: Array | None = None


def noisy_steps(deviations: Sequence[Deviation]) -> dict[str, str]:
    """Return stage → the form of the step that is predicted in size only there; of two, what is applied last."""
    found: dict[str, str] = {}
    for deviation in deviations:
        for step, form in deviation.patch.steps.items():
            if form in NOISY:
                stage = stage_of(step)
                if stage not in found or form in DROPOUTS:
                    found[stage] = form
    return found


def has_dropout(deviations: Sequence[Deviation]) -> bool:
    """Whether one of them is dropout, so that two answers to one question differ."""
    return any(form in DROPOUTS for deviation in deviations for form in deviation.patch.steps.values())


def prediction_of(form: str) -> str:
    """Return in a few words what a form predicts."""
    if form in DROPOUTS:
        return "elements are 0, or all scaled by one number"
    if form == "fast-variance":
        return "the variance of each row is off as float32's E[x²] − E[x]² is"
    if form in WITHOUT_LARGEST:
        return "what overflows is not finite, and the rest is right"
    return f"values are those of {_FORMAT_OF.get(form, form.removeprefix('in-'))}"


def prediction_result(form: str, stage: NoisyStage) -> PredictionResult | None:
    """Return whether what a form predicts of a stage came true; None where the stage cannot show it."""
    if form in DROPOUTS:
        return _scaled_or_dropped(stage, broadcast=form == "dropout-broadcast")
    as_predicted = _as_predicted(stage)
    if as_predicted is None or as_predicted.true:
        return as_predicted
    if form == "fast-variance":
        return as_predicted if stage.rows is None else _variance_off(stage.rows)
    return _on_grid(stage, _FORMAT_OF.get(form, form.removeprefix("in-")))


def _as_predicted(stage: NoisyStage) -> PredictionResult | None:
    """Test the values themselves, rounded as the oracle rounds them."""
    errors = in_sigma(stage.observed, stage.predicted, stage.sigma)
    distinct = np.abs(in_sigma(stage.predicted, stage.plain, stage.sigma)) > constants().max_limit
    if np.count_nonzero(distinct) < ENOUGH:
        return None
    return PredictionResult(conforms(errors), errors)


def _on_grid(stage: NoisyStage, dtype: str) -> PredictionResult | None:
    """Test that every value is one of the narrow format, as few of the wide one are. A framework may round elsewhere
    inside than the oracle does; if it rounds its result, that shows. A form that rounds its operands alone has no grid
    of its own, and a result may be rounded that was computed as exactly as ever: of both the values are known."""
    with np.errstate(all="ignore"):
        off_grid = np.abs(stage.plain - narrowed(stage.plain, dtype)) > constants().max_limit * stage.sigma
        on_grid = np.isnan(stage.observed) | (stage.observed == narrowed(stage.observed, dtype))
    shown = np.unique(stage.observed[off_grid & (stage.observed != 0)])  # zeros are on any grid
    is_own = len(shown) >= ENOUGH and _with_last_bit(shown, dtype) >= _ODD
    if not (is_own and on_grid.all()):
        return PredictionResult(False)
    with np.errstate(all="ignore"):
        of_operands, of_result = narrowed(stage.predicted, dtype), narrowed(stage.plain, dtype)
        if np.array_equal(stage.predicted, of_operands, equal_nan=True):
            return PredictionResult(True)
        distinct = of_operands != of_result
        nearer = np.abs(stage.observed - of_operands) < np.abs(stage.observed - of_result)
    if np.count_nonzero(distinct) < ENOUGH:
        return None
    return PredictionResult(bool(np.mean(nearer[distinct]) > _MOST))


def _with_last_bit(values: P, dtype: str) -> float:
    """Return the part of the values, on the format's grid, that have its last bit: they are on no coarser one."""
    mantissa, _ = np.frexp(np.abs(values[np.isfinite(values)]))
    return float(np.mean(np.rint(mantissa * 2.0 ** _BITS[dtype]) % 2)) if mantissa.size else 0.0


def overflows_in_part(predicted: P, plain: P) -> bool:
    """Whether enough values are predicted not to be finite where they should be, and enough to be."""
    finite, due = np.isfinite(predicted), np.isfinite(plain)
    return min(int(np.count_nonzero(due & each)) for each in (finite, ~finite)) >= ENOUGH


def errs_alike(observed: P, predicted: P, plain: P) -> bool:
    """Whether what was observed is off from `plain` as what is predicted is, value by value, and not in size alone.

    A rounding inside a step that is not seen shows so in what follows from it; what errs as much by another cause does
    not.
    """
    finite = np.isfinite(observed) & np.isfinite(predicted) & np.isfinite(plain)
    seen, due = (each[finite] - plain[finite] for each in (observed, predicted))
    along, length = float(seen @ due), float(due @ due)
    size = float(np.linalg.norm(seen)) * length**0.5
    cosine = along / size if size else 0.0
    of_one_source = cosine > _ALIKE and cosine * np.sqrt(np.count_nonzero(due)) > _BY_NO_CHANCE
    return of_one_source and along <= _TIMES * length


def _scaled_or_dropped(stage: NoisyStage, *, broadcast: bool) -> PredictionResult | None:
    """Test that each element is 0 or one scale times what it would be, and as many are 0 as that scale says."""
    finite = np.isfinite(stage.plain)
    large = finite & (np.abs(np.where(finite, stage.plain, 0.0)) > _FAR * stage.sigma)
    zero = stage.observed == 0
    kept, gone = large & ~zero, large & zero
    if np.count_nonzero(large) < ENOUGH or not kept.any():
        return None
    with np.errstate(all="ignore"):  # an element that a right layer has no rounding of
        weight = stage.plain[kept] / stage.sigma[kept] ** 2
        scale = float((weight @ stage.observed[kept]) / (weight @ stage.plain[kept]))
    if not scale > 1:
        return PredictionResult(False)
    errors = np.where(zero, 0.0, in_sigma(stage.observed, scale * stage.plain, scale * stage.sigma))
    total, dropped, rate = int(np.count_nonzero(large)), int(np.count_nonzero(gone)), 1 - 1 / scale
    tail = smaller_tail(dropped, total, rate)
    if not dropped and tail >= _CHANCE:
        return None  # so few that none need have been dropped
    alike = _same_in_every_item(stage.index[large], gone[large])
    shared = broadcast if alike is None else alike
    true = conforms(errors) and (tail >= _CHANCE or shared) and dropped > 0 and shared == broadcast
    return PredictionResult(bool(true), errors if true else None)


def _same_in_every_item(index: Array, gone: P) -> bool | None:
    """Whether the same (query, key) or (position, feature) is dropped in every item and head; None if few can say.
    `index` is [P, axes]."""
    groups: dict[tuple[int, ...], list[bool]] = {}
    for at, zero in zip(index[:, -2:].tolist(), gone.tolist(), strict=True):
        groups.setdefault(tuple(at), []).append(zero)
    hit = [group for group in groups.values() if len(group) > 1 and any(group)]
    if sum(map(sum, hit)) < ENOUGH:
        return None
    return all(all(group) for group in hit)


def _variance_off(rows: NormRows) -> PredictionResult | None:
    """Test that the variance of each row is off by no more than float32 rounds E[x²] by, and not alike in all rows."""
    normal, seen = rows.right - rows.shift, rows.observed - rows.shift
    with np.errstate(all="ignore"):
        weight = normal / rows.sigma**2
        scale = (weight * seen).sum(-1) / (weight * normal).sum(-1)  # √(right variance + ε) / √(seen variance + ε)
        errors = (seen - scale[:, None] * normal) / (np.maximum(scale, 1.0)[:, None] * rows.sigma)
        relative = 1 / np.sqrt(np.mean((scale[:, None] * normal / rows.sigma) ** 2, -1))
        whole = rows.x.var(-1) + rows.epsilon
        off = whole * (scale**-2.0 - 1)
        unsure = 2 * whole * scale**-2.0 * relative
        most = 2 * rows.x.shape[-1] * FLOAT32_ROUNDOFF * np.mean(rows.x**2, -1)
        differs = bool(np.any(np.abs(off - np.median(off)) > constants().max_limit * unsure))
        bounded = bool(np.all(np.abs(off) <= most + constants().max_limit * unsure))
    return PredictionResult(differs and bounded and conforms(errors.reshape(-1)))
