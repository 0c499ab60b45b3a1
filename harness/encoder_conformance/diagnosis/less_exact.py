"""A softmax that is right in exact arithmetic and loses more than its clause allows: exp(s − log Σ exp(s)) (E-5).

The logarithm of the sum is rounded at its own size, and so are all weights of a row off by one factor, which follows
from the scores alone. A layer is called this only where its rows are off by these very factors.
"""

from collections.abc import Sequence

import numpy as np

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.samples import EXACT, Sample, samples_of
from encoder_conformance.diagnosis.in_sigma import conforms, in_sigma
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.oracle.equation import evaluate
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.deviation import Deviation, Patch
from encoder_conformance.spec.equation import Equation

_STAGE = "attention_weights"
_SCORES = "attention_scores + bias"
_LARGEST = f"largest(where(mask, {_SCORES}, -1e30), -1)"
_LOG_SUM = f"({_LARGEST} + log(sum(where(mask, exp({_SCORES} - {_LARGEST}), 0), -1)))"
_WEIGHTS = f"where(mask, exp({_SCORES} - {_LOG_SUM}), 0)"
_SPECIFIED = f"softmax({_SCORES}, mask)"
BY_LOG_SUM = Deviation(
    deviation="softmax-by-log-sum",
    sentence=f"{_STAGE} are exp(s − log Σ exp(s)), which is less exact than clause E-5 allows: compute exp(s − max) / "
    "Σ exp(s − max).",
    kind="numerics",
    patch=Patch(stages={_STAGE: {_SPECIFIED: f"where(largest(mask, -1), {_WEIGHTS}, {_SPECIFIED})"}}),
    unseen=None,
    links=("https://arxiv.org/abs/1909.03469",),
)
_TOLD = 4.0
"""Uncertainties from which a row says whether it is off by what is predicted."""
_ENOUGH = 8
"""Rows that have to say so."""
_ALIKE = 0.75
"""The part of these rows in which a framework's logarithm and sum are rounded to the very number."""


def softmax_by_log_sum(evidence: Sequence[Evidence]) -> Match | None:
    """Return the match of `BY_LOG_SUM`, in its own noise, if it explains all evidence and its rows are as predicted."""
    samples = [sample for sample in samples_of(_STAGE, evidence) if sample.specified.form == _SPECIFIED]
    if not samples or not _rows_as_predicted(samples):
        return None
    match = Match((BY_LOG_SUM,))
    for piece in evidence:
        match.try_on(piece, measured=True)
        if not match.explains:
            return None
    return match


def _rows_as_predicted(samples: Sequence[Sample]) -> bool:
    found = [_told_rows(sample.at_all_positions()) for sample in samples]
    if any(rows is None for rows in found):
        return False
    alike = np.concatenate([rows for rows in found if rows is not None])
    return len(alike) >= _ENOUGH and float(alike.mean()) >= _ALIKE


def _told_rows(sample: Sample) -> Array | None:
    """Return, of each row [n] that says anything, whether it is off by what is predicted; None where a row is off by
    more than one rounding of the logarithm, or by no single factor."""
    seen = sample.observed_whole()
    specified = sample.whole(sample.specified.tree)
    predicted, most = _rounding_of_log_sum(sample)
    sigma = np.full(sample.shape, np.inf)
    sigma.reshape(-1)[sample.positions] = np.maximum(sample.sigma, sample.relative * np.abs(sample.observed))
    if specified is None:
        return None
    weight = np.where(np.isfinite(seen) & np.isfinite(specified), specified / sigma, 0.0)
    size = np.maximum((weight**2).sum(-1), 1e-300)
    off = (weight * np.where(weight != 0, (seen - specified) / sigma, 0.0)).sum(-1) / size
    unsure = 1 / np.sqrt(size)
    errors = in_sigma(seen, specified * (1 + off[..., None]), sigma).reshape(-1)[sample.positions]
    has_key = np.isfinite(predicted)
    if not conforms(errors) or np.any(np.abs(off[has_key]) > (most + _TOLD * unsure)[has_key]):
        return None
    told = has_key & (np.maximum(np.abs(predicted), np.abs(off)) > _TOLD * unsure)
    return np.abs(off - predicted)[told] <= _TOLD * unsure[told]


def _rounding_of_log_sum(sample: Sample) -> tuple[Array, Array]:
    """Return, by row, the relative error of weights that rounding log Σ exp(s) to the format makes, and the most that
    one rounding can make; NaN for a query with no key."""
    dtype = sample.evidence.dtype.numpy
    scores = evaluate(Equation(_SCORES), EXACT, sample.operands).astype(dtype).astype(np.longdouble)
    mask = np.broadcast_to(sample.operands["mask"].astype(np.bool_), sample.shape)
    kept = np.where(mask, scores, -np.inf)
    largest = kept.max(-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # −∞ − −∞ of a query with no key
        log_sum = (largest + np.log(np.exp(kept - largest).sum(-1, keepdims=True)))[..., 0]
    rounded = log_sum.astype(dtype)
    return (log_sum - rounded).astype(np.float64), np.abs(np.spacing(rounded)).astype(np.float64)
