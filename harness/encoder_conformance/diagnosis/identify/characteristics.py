"""Sentences on the results of a step whose equation was not found, each of them tested on every case."""

from collections.abc import Sequence

import numpy as np

from encoder_conformance.diagnosis.identify.samples import Sample
from encoder_conformance.diagnosis.identify.step_characteristics import (
    IN_LINE,
    activation,
    linear,
    norm,
    scores,
    sum_by_feature,
    weights,
)
from encoder_conformance.diagnosis.identify.suggested import wrong_slices
from encoder_conformance.diagnosis.in_sigma import rms
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.stages import LAST_AXIS_IS_KEYS

_MOST = 3
"""Sentences that are said of a stage."""


def characteristics(stage: str, samples: Sequence[Sample]) -> tuple[str, ...]:
    """Return sentences on what the stage holds, the most informative first; () where nothing of this is so."""
    if sentence := in_one_sentence(stage, samples):
        return (sentence,)
    found = [_in_some_slices(stage, samples), *weights(stage, samples)]
    found += [test(stage, samples) for test in (activation, linear, norm, sum_by_feature, scores)]
    return tuple(filter(None, found))[:_MOST]


def in_one_sentence(stage: str, samples: Sequence[Sample]) -> str:
    """Return what accounts for all that it holds, or that it holds NaN; "" where it is neither."""
    tests = (_not_finite, _proportional, _shifted, _permuted)
    return next((sentence for test in tests if (sentence := test(stage, samples))), "")


_AXES = {
    3: ("items", "positions", "features"),
    4: ("items", "heads", "queries", "keys"),
}


def _in_some_slices(stage: str, samples: Sequence[Sample]) -> str:
    """Say which slices of an axis are out of line, where others are right."""
    for slices in wrong_slices(samples[0].specified.tree, samples):
        axes = _AXES[len(samples[0].shape)]
        of_keys = stage in LAST_AXIS_IS_KEYS
        name = "features" if slices.axis == -1 and not of_keys else axes[slices.axis]
        return f"{stage} is out of line at {name} {slices.text} alone, and right at the others."
    return ""


def _specified(sample: Sample) -> Array:
    computed = sample.computed(sample.specified.tree)
    assert computed is not None
    return computed


def _not_finite(stage: str, samples: Sequence[Sample]) -> str:
    for sample in samples:
        specified = np.isfinite(_specified(sample))
        lost, filled = ~np.isfinite(sample.observed) & specified, np.isfinite(sample.observed) & ~specified
        if filled.any():
            value, where = sample.observed[filled][0], _where(filled, sample)
            return f"{stage} holds {value:.6g} where the specification has NaN or infinity: {where}."
        if lost.any():
            value = sample.observed[lost][0]
            lost_value = "NaN" if np.isnan(value) else value
            return f"{stage} holds {lost_value} where the specification has numbers: {_where(lost, sample)}."
    return ""


def _where(these: Array, sample: Sample) -> str:
    return f"{int(these.sum())} of {these.size} compared values in {sample.evidence.case.id}"


def _comparable(samples: Sequence[Sample]) -> tuple[Array, Array, Array]:
    """Return what is specified, what was observed, and σ, of all cases, [n] each, where none is NaN or infinite."""
    right = np.concatenate([_specified(sample) for sample in samples])
    seen = np.concatenate([sample.observed for sample in samples])
    sigma = np.concatenate([np.maximum(sample.sigma, sample.relative * np.abs(sample.observed)) for sample in samples])
    finite = np.isfinite(right) & np.isfinite(seen) & np.isfinite(sigma)
    return right[finite], seen[finite], sigma[finite]


def _proportional(stage: str, samples: Sequence[Sample]) -> str:
    """Test for one factor of all values of all cases."""
    right, seen, sigma = _comparable(samples)
    factor = float((right / sigma) @ (seen / sigma) / max(float((right / sigma) @ (right / sigma)), 1e-300))
    if rms((seen - right) / sigma) < IN_LINE or rms((seen - factor * right) / sigma) > IN_LINE:
        return ""
    return f"{stage} is {factor:.6g} times what is specified."


def _shifted(stage: str, samples: Sequence[Sample]) -> str:
    """Test for one number added to all values of all cases."""
    right, seen, sigma = _comparable(samples)
    offset = float(np.average(seen - right, weights=1 / sigma**2))
    return f"{stage} is what is specified plus {offset:.6g}." if rms((seen - right - offset) / sigma) < IN_LINE else ""


def _permuted(stage: str, samples: Sequence[Sample]) -> str:
    """Test for the same values in other places, of each case."""

    def permuted(sample: Sample) -> bool:
        seen, right = np.sort(sample.observed), np.sort(_specified(sample))
        sigma = np.maximum(np.median(sample.sigma), sample.relative * np.abs(right))
        return sample.observed.size > 8 and rms((seen - right) / sigma) < IN_LINE

    return f"{stage} holds the specified values in other places." if all(map(permuted, samples)) else ""
