"""Claims about the results of a step whose equation was not found, each of them held to every case, in σ."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from encoder_conformance.diagnosis.claims import claim
from encoder_conformance.diagnosis.identify.curves import activation, scores
from encoder_conformance.diagnosis.identify.samples import Sample
from encoder_conformance.diagnosis.identify.step_characteristics import (
    linear,
    norm,
    repeated_masks,
    sum_by_feature,
    weights,
)
from encoder_conformance.diagnosis.identify.suggested import Slices, wrong_slices
from encoder_conformance.diagnosis.in_sigma import conforms, held, rms
from encoder_conformance.judging.records import Claim
from encoder_conformance.spec.axes import Array, P
from encoder_conformance.spec.stages import LAST_AXIS_IS_KEYS

_MOST = 3
"""Claims that are made of a stage."""
_DISTINCT = 8
"""Different values, at least, of which it can be said that they are in other places."""


def characteristics(stage: str, samples: Sequence[Sample]) -> tuple[Claim, ...]:
    """Return what is so of the stage, the most informative first; () where nothing of this is, or it is right."""
    if _is_right(samples):
        return ()
    masks = tuple(repeated_masks(stage, samples))
    if found := in_one_claim(stage, samples):
        return (*masks, found)
    claims = [*masks, *_in_some_slices(stage, samples), *weights(stage, samples)]
    claims += [each for test in (activation, linear, norm, sum_by_feature, scores) if (each := test(stage, samples))]
    return tuple(claims)[:_MOST]


def in_one_claim(stage: str, samples: Sequence[Sample]) -> Claim | None:
    """Return what accounts for all that it holds, or that it holds NaN; None where it is neither, or it is right."""
    if lost := _not_finite(stage, samples):
        return lost
    if _is_right(samples):
        return None
    tests: tuple[Callable[[str, Sequence[Sample]], Claim | None], ...] = (_proportional, _shifted, _permuted)
    return next((found for test in tests if (found := test(stage, samples))), None)


def _is_right(samples: Sequence[Sample]) -> bool:
    errors = [sample.errors(sample.specified.tree) for sample in samples]
    return all(each is not None and (not each.size or conforms(each)) for each in errors)


_AXES = {
    3: ("items", "positions", "features"),
    4: ("items", "heads", "queries", "keys"),
}


def _in_some_slices(stage: str, samples: Sequence[Sample]) -> Iterator[Claim]:
    """Yield which slices of an axis are out of line, where others are right."""
    for slices in wrong_slices(samples[0].specified.tree, samples):
        axes = _AXES[len(samples[0].shape)]
        of_keys = stage in LAST_AXIS_IS_KEYS
        name = "features" if slices.axis == -1 and not of_keys else axes[slices.axis]
        right = [errors for sample in samples if (errors := _elsewhere(slices, sample)).size]
        sigma = max(map(rms, right), default=0.0)
        yield claim("slices", sigma, cases=len(right), stage=stage, axis=name, condition=slices.text)
        return


def _elsewhere(slices: Slices, sample: Sample) -> P:
    """Return the errors of the specified step where it is not in these slices, [P]."""
    errors = sample.errors(sample.specified.tree)
    at = np.unravel_index(sample.positions, sample.shape)[slices.axis]
    return np.empty(0) if errors is None else errors[~slices.holds(at, sample.shape[slices.axis])]


def _specified(sample: Sample) -> Array:
    computed = sample.computed(sample.specified.tree)
    assert computed is not None
    return computed


def _not_finite(stage: str, samples: Sequence[Sample]) -> Claim | None:
    for sample in samples:
        specified = np.isfinite(_specified(sample))
        lost, filled = ~np.isfinite(sample.observed) & specified, np.isfinite(sample.observed) & ~specified
        if filled.any():
            value = float(sample.observed[filled][0])
            return claim("filled", stage=stage, value=value, where=_where(filled, sample))
        if lost.any():
            value = float(sample.observed[lost][0])
            text = "NaN" if np.isnan(value) else str(value)  # JSON has neither
            return claim("lost", stage=stage, value=text, where=_where(lost, sample))
    return None


def _where(these: Array, sample: Sample) -> str:
    return f"{int(these.sum())} of {these.size} compared values in {sample.evidence.case.id}"


def _comparable(sample: Sample) -> tuple[Array, Array, Array]:
    """Return what is specified, what was observed, and σ, [n] each, where none is NaN or infinite."""
    right, seen = _specified(sample), sample.observed
    sigma = np.maximum(sample.sigma, sample.relative * np.abs(seen))
    finite = np.isfinite(right) & np.isfinite(seen) & np.isfinite(sigma)
    return right[finite], seen[finite], sigma[finite]


def _in_sigma(samples: Sequence[Sample]) -> list[tuple[Array, Array]]:
    """Return what is specified and what was observed of each case, both in σ."""
    cases = [_comparable(sample) for sample in samples]
    return [(right / sigma, seen / sigma) for right, seen, sigma in cases if right.size]


def _proportional(stage: str, samples: Sequence[Sample]) -> Claim | None:
    """Test for one factor of all values of all cases."""
    cases = _in_sigma(samples)
    length = sum(float(right @ right) for right, _ in cases)
    factor = sum(float(right @ seen) for right, seen in cases) / max(length, 1e-300)
    sigma, text = held(seen - factor * right for right, seen in cases), f"{factor:.6g}"
    if sigma is None or text == "1":  # what is nearer to 1 than can be shown is no factor
        return None
    return claim("factor", sigma, cases=len(cases), stage=stage, factor=factor)


def _shifted(stage: str, samples: Sequence[Sample]) -> Claim | None:
    """Test for one number added to all values of all cases."""
    cases = [case for case in map(_comparable, samples) if case[0].size]
    weights = [1 / sigma**2 for _, _, sigma in cases]
    along = sum(float(weight @ (seen - right)) for (right, seen, _), weight in zip(cases, weights, strict=True))
    offset = along / max(sum(float(weight.sum()) for weight in weights), 1e-300)
    sigma = held((seen - right - offset) / noise for right, seen, noise in cases)
    return None if sigma is None else claim("offset", sigma, cases=len(cases), stage=stage, offset=offset)


def _permuted(stage: str, samples: Sequence[Sample]) -> Claim | None:
    """Test for the same values in other places, of each case: each in the σ of the place that it has left."""
    errors = []
    for right, seen, noise in (_comparable(sample.at_all_positions()) for sample in samples):
        order = np.argsort(right)
        errors.append((np.sort(seen) - right[order]) / noise[order])
        if len(np.unique(right)) < _DISTINCT:
            return None
    sigma = held(errors)
    return None if sigma is None else claim("elsewhere", sigma, cases=len(errors), stage=stage)
