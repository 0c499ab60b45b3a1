"""What can be said of a step whose equation was not found: sentences about its results, each of them tested."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from encoder_conformance.diagnosis.identify.samples import Sample
from encoder_conformance.judge.observation import Array

_IN_LINE = 2.0
"""rms, in σ, as of every comparison."""
_SMOOTH = 1e-3
"""Of the range of an activation: what is left of a smooth one, between neighbours of some thousand values."""


def characteristics(stage: str, samples: Sequence[Sample]) -> tuple[str, ...]:
    """Sentences about what the stage holds, the most telling first; () where nothing of this is so."""
    if sentence := _not_finite(stage, samples):
        return (sentence,)
    tests = (_proportional, _shifted, _permuted, _function_of_one_value, _linear)
    return tuple(sentence for test in tests if (sentence := test(stage, samples)))[:1]


def _specified(sample: Sample) -> Array:
    computed = sample.computed(sample.specified.tree)
    assert computed is not None
    return computed


def _not_finite(stage: str, samples: Sequence[Sample]) -> str:
    for sample in samples:
        lost = ~np.isfinite(sample.observed) & np.isfinite(_specified(sample))
        if lost.any():
            value = sample.observed[lost][0]
            where = f"{int(lost.sum())} of {lost.size} compared values in {sample.evidence.case.id}"
            return f"{stage} holds {'NaN' if np.isnan(value) else value} where the specification has numbers: {where}."
    return ""


def _all(samples: Sequence[Sample], test: Callable[[Sample], bool]) -> bool:
    return all(test(sample) for sample in samples)


def _rms(errors: Array) -> float:
    return float(np.sqrt(np.mean(errors * errors))) if errors.size else 0.0


def _proportional(stage: str, samples: Sequence[Sample]) -> str:
    """One factor for all values of all cases."""
    right = np.concatenate([_specified(sample) for sample in samples])
    seen = np.concatenate([sample.observed for sample in samples])
    sigma = np.concatenate([np.maximum(sample.sigma, sample.relative * np.abs(sample.observed)) for sample in samples])
    factor = float((right / sigma) @ (seen / sigma) / max(float((right / sigma) @ (right / sigma)), 1e-300))
    if _rms((seen - right) / sigma) < _IN_LINE or _rms((seen - factor * right) / sigma) > _IN_LINE:
        return ""
    return f"{stage} is {factor:.6g} times what is specified."


def _shifted(stage: str, samples: Sequence[Sample]) -> str:
    """One number added to all values of all cases."""
    apart = np.concatenate([(sample.observed - _specified(sample)) for sample in samples])
    sigma = np.concatenate([np.maximum(sample.sigma, sample.relative * np.abs(sample.observed)) for sample in samples])
    offset = float(np.average(apart, weights=1 / sigma**2))
    return f"{stage} is what is specified plus {offset:.6g}." if _rms((apart - offset) / sigma) < _IN_LINE else ""


def _permuted(stage: str, samples: Sequence[Sample]) -> str:
    """The same values in other places, of each case."""

    def permuted(sample: Sample) -> bool:
        seen, right = np.sort(sample.observed), np.sort(_specified(sample))
        sigma = np.maximum(np.median(sample.sigma), sample.relative * np.abs(right))
        return sample.observed.size > 8 and _rms((seen - right) / sigma) < _IN_LINE

    return f"{stage} holds the specified values in other places." if _all(samples, permuted) else ""


def _function_of_one_value(stage: str, samples: Sequence[Sample]) -> str:
    """Of an activation: how far it is from a curve through neighbours in order of the input, and where that goes."""
    if stage != "ffn_activation":
        return ""
    given, seen = (np.concatenate(values) for values in zip(*map(_input_and_output, samples), strict=True))
    order = np.argsort(given)
    given, seen = given[order], seen[order]
    between = np.interp(given[1:-1:2], given[::2], seen[::2])
    apart = float(np.median(np.abs(seen[1:-1:2] - between))) / max(float(np.ptp(seen)), 1e-300)
    if apart > _SMOOTH:
        return f"{stage} follows no smooth curve of ffn_hidden: neighbours are off by {apart:.2g} of its range."
    points = ", ".join(f"f({at:g}) = {float(np.interp(at, given, seen)):.3g}" for at in _points(given))
    return f"{stage} follows one curve of ffn_hidden, to {apart:.1g} of its range: {points}."


def _input_and_output(sample: Sample) -> tuple[Array, Array]:
    return sample.operands["ffn_hidden"].reshape(-1)[sample.positions], sample.observed


def _points(given: Array) -> Iterator[float]:
    return (at for at in (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0) if given[0] <= at <= given[-1])


_LINEAR_MAPS = frozenset({"query", "key", "value", "attention_output", "ffn_hidden", "ffn_output"})


def _linear(stage: str, samples: Sequence[Sample]) -> str:
    """Of a linear map: whether one weight and one bias give all cases that were built with the same parameters."""
    if stage not in _LINEAR_MAPS or not all(np.isfinite(sample.observed).all() for sample in samples):
        return ""
    by_build: dict[str, list[Sample]] = {}
    for sample in samples:
        case = sample.evidence.case
        by_build.setdefault(f"{case.layer.layer} {case.situation.parameter_exponents}", []).append(sample)
    nearest, sources = 0.0, set[str]()
    for group in by_build.values():
        [source] = (name for name in group[0].specified.names if "." not in name)
        sources.add(source)
        rows, results, noise = (
            np.concatenate(parts) for parts in zip(*(_rows(one, source) for one in group), strict=True)
        )
        if len(rows) <= 2 * rows.shape[1]:
            return ""
        design = np.hstack([rows, np.ones((len(rows), 1))])
        solved, *_ = np.linalg.lstsq(design, results, rcond=None)
        nearest = max(nearest, _rms((results - design @ solved) / np.maximum(noise, 1e-300)))
    what = " or ".join(sorted(sources))
    if nearest < 2 * _IN_LINE:
        return f"{stage} is a linear map of {what}, with another weight or another bias than the specified."
    return f"{stage} is no linear map of {what} ({nearest:.2g} σ from the nearest)."


def _rows(sample: Sample, source: str) -> tuple[Array, Array, Array]:
    """Inputs [n, in], outputs [n, out] and σ [n, out] at the rows that are compared whole."""
    given, out = sample.operands[source], sample.shape[-1]
    whole = np.flatnonzero(np.bincount(sample.positions // out, minlength=int(np.prod(sample.shape[:-1]))) == out)
    kept = np.isin(sample.positions // out, whole)
    sigma = np.maximum(sample.sigma, sample.relative * np.abs(sample.observed))
    return (
        given.reshape(-1, given.shape[-1])[whole],
        sample.observed[kept].reshape(-1, out),
        sigma[kept].reshape(-1, out),
    )
