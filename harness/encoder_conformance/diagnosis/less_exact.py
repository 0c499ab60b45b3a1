"""A softmax that is right in exact arithmetic and loses more than its clause allows: exp(s − log Σ exp(s)) (E-5).

The logarithm of the sum is rounded at its own size, and so are all weights of a row off by one factor, which follows
from the scores alone. A layer is called this only where its rows are off by these very factors, or, where no row is
shown, an output by what these factors make of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.identify.from_output import output_samples
from encoder_conformance.diagnosis.identify.samples import EXACT, Sample, operands_of, samples_of
from encoder_conformance.diagnosis.in_sigma import conforms, in_sigma, rms
from encoder_conformance.diagnosis.match import Match
from encoder_conformance.oracle.equation import Operands, evaluate
from encoder_conformance.oracle.forms import stage_equations
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.deviation import Deviation, Patch
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import constants

_STAGE = "attention_weights"
_SCORES = "attention_scores + bias"
_LARGEST = f"largest(where(mask, {_SCORES}, -1e30), -1)"
_LOG_SUM = f"({_LARGEST} + log(sum(where(mask, exp({_SCORES} - {_LARGEST}), 0), -1)))"
_WEIGHTS = f"where(mask, exp({_SCORES} - {_LOG_SUM}), 0)"
_SPECIFIED = f"softmax({_SCORES}, mask)"
BY_LOG_SUM = Deviation(
    deviation="softmax-by-log-sum",
    sentence="The softmax is exp(s − log Σ exp(s)), which is less exact than clause E-5 allows: compute exp(s − max) / "
    "Σ exp(s − max).",
    kind="numerics",
    patch=Patch(stages={_STAGE: {_SPECIFIED: f"where(largest(mask, -1), {_WEIGHTS}, {_SPECIFIED})"}}),
    unseen=None,
    links=("https://arxiv.org/abs/1909.03469",),
)
_SURE = 8.0
"""Uncertainties that the predicted factors have to be seen by, over all rows."""
_FAR = 100.0
"""The rms, in σ, that no rounding of a logarithm makes of an output: it makes a few."""
_GIVEN = "context", "context_merged"
"""What the weights give, which shows their factors where they are not shown."""
_OF_ITS_SIZE = 0.75, 1.25
"""The part of the predicted factors that is seen: in some rows a framework's logarithm is rounded otherwise."""


def softmax_by_log_sum(evidence: Sequence[Evidence]) -> Match | None:
    """Return the match of `BY_LOG_SUM`, in its own noise, if it explains all evidence and its rows are as predicted."""
    rows = _rows(evidence)
    alone = [] if rows or any(map(_is_far, evidence)) else evidence
    seen = _rows_as_predicted(rows) if rows else any(map(_output_as_predicted, alone))
    match = Match.of((BY_LOG_SUM,), evidence, measured=True) if seen else None
    return match if match and match.explains else None


def _rows_as_predicted(rows: Sequence["_Rows"]) -> bool:
    """Whether the factors of all rows together are those that are predicted, as a matched filter sees them."""
    if not all(each.are_off_by_one_rounding for each in rows):
        return False
    along = sum(float((each.off * each.predicted / each.unsure**2).sum()) for each in rows)
    length = sum(float((each.predicted**2 / each.unsure**2).sum()) for each in rows)
    return _is_seen(along, length)


def _is_seen(along: float, length: float) -> bool:
    """Whether what a matched filter sees is there, and of its size."""
    least, most = _OF_ITS_SIZE
    return along >= _SURE * length**0.5 and least * length <= along <= most * length


def _is_far(piece: Evidence) -> bool:
    return rms(piece.distance(piece.observed, piece.right)) > _FAR


def _output_as_predicted(piece: Evidence) -> bool:
    """Whether an output that is shown alone is what the predicted factors make of the right one. Not where scores are
    as unsure as the logarithm's rounding is large: the factors are others there."""
    layer = piece.case.layer
    if piece.stages != ("output",) or layer.is_stack or not piece.is_comparable:
        return False
    if _specified_of(layer) != _SPECIFIED:
        return False
    for sample in output_samples([piece]).get(_STAGE, ()):
        weights, (factors, _) = sample.every[_STAGE], _rounding_of_log_sum(sample.operands, piece.dtype)
        right, predicted = (sample.output_with(weights * (1 + by)) for by in (0.0, np.nan_to_num(factors)[..., None]))
        if right is None or predicted is None:
            return False
        off, left = (in_sigma(sample.observed, each, sample.sigma) for each in (right, predicted))
        if conforms(left):
            return _is_seen(float(off @ (off - left)), float((off - left) @ (off - left)))
    return False


@dataclass(frozen=True)
class _Rows:
    """The rows that have a key, [n]: by what relative error each is `off`, how `unsure` that is, what is `predicted`,
    and the `most` that one rounding makes. `errors`, in σ, are left when each row is put right."""

    off: Array
    unsure: Array
    predicted: Array
    most: Array
    errors: Array

    @classmethod
    def of(cls, seen: Array, specified: Array, sigma: Array, rounding: tuple[Array, Array]) -> "_Rows":
        """Arrays are [..., rows, n]; σ is ∞ where nothing is compared. `rounding`: predicted and most, [..., rows]."""
        weight = np.where(np.isfinite(seen) & np.isfinite(specified), specified / sigma, 0.0)
        size = (weight**2).sum(-1)
        off = (weight * np.where(weight != 0, (seen - specified) / sigma, 0.0)).sum(-1) / np.maximum(size, 1e-300)
        errors = in_sigma(seen, specified * (1 + off[..., None]), sigma)[np.isfinite(sigma)]
        predicted, most = rounding
        kept = np.isfinite(predicted) & (size > 0)
        return cls(off[kept], 1 / np.sqrt(size[kept]), predicted[kept], most[kept], errors)

    @property
    def are_off_by_one_rounding(self) -> bool:
        within = np.abs(self.off) <= self.most + constants().max_limit * self.unsure
        return conforms(self.errors) and bool(within.all())


def _rows(evidence: Sequence[Evidence]) -> list[_Rows]:
    """Of the weights, or, where none are shown, of what they give: its rows are off by the same factors."""
    weights = [sample for sample in samples_of(_STAGE, evidence) if sample.specified.form == _SPECIFIED]
    if weights:
        return [_rows_of_weights(sample.at_all_positions()) for sample in weights]
    return [rows for piece in evidence if (rows := _rows_of_context(piece)) is not None]


def _rows_of_weights(sample: Sample) -> _Rows:
    specified, sigma = sample.whole(sample.specified.tree), np.full(sample.shape, np.inf)
    assert specified is not None
    sigma.reshape(-1)[sample.positions] = sample.sigma
    rounding = _rounding_of_log_sum(sample.operands, sample.evidence.dtype)
    return _Rows.of(sample.observed_whole(), specified, sigma, rounding)


def _rows_of_context(piece: Evidence) -> _Rows | None:
    """By heads, what the weights give; None where that is not shown, or the weights are."""
    shown = next((stage for stage in _GIVEN if stage in piece.seen), None)
    layer = piece.case.layer
    if shown is None or _STAGE in piece.seen or layer.is_stack or _specified_of(layer) != _SPECIFIED:
        return None
    sigma = np.where(piece.case.compared("stages")[shown], piece.sigma(shown), np.inf)
    by_heads = [_by_heads(each, layer) for each in (piece.seen[shown], piece.right_stage(shown), sigma)]
    operands = operands_of(piece, {"attention_scores": piece.right_stage("attention_scores")})
    return _Rows.of(by_heads[0], by_heads[1], by_heads[2], _rounding_of_log_sum(operands, piece.dtype))


def _specified_of(layer: Layer) -> str:
    specified = stage_equations(layer).get(_STAGE)
    return "" if specified is None else specified.form


def _by_heads(value: Array, layer: Layer) -> Array:
    """[B, H, S, d] of that or of [B, S, H · d]."""
    if value.ndim == 4:
        return value.astype(np.float64)
    B, S, _ = value.shape
    return value.reshape(B, S, layer.attention.num_heads, -1).swapaxes(1, 2).astype(np.float64)


def _rounding_of_log_sum(operands: Operands, format: Format) -> tuple[Array, Array]:
    """Return, by row, the relative error of weights that rounding log Σ exp(s) to the format makes, and the most that
    one rounding can make; NaN for a query with no key."""
    dtype = format.numpy
    scores = evaluate(Equation(_SCORES), EXACT, operands).astype(dtype).astype(np.longdouble)
    mask = np.broadcast_to(operands["mask"].astype(np.bool_), scores.shape)
    kept = np.where(mask, scores, -np.inf)
    largest = kept.max(-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # −∞ − −∞ of a query with no key
        log_sum = (largest + np.log(np.exp(kept - largest).sum(-1, keepdims=True)))[..., 0]
    rounded = log_sum.astype(dtype)
    return (log_sum - rounded).astype(np.float64), np.abs(np.spacing(rounded)).astype(np.float64)
