"""Claims about a step as a function of one number: whether neighbours say that it follows a curve, and which.

Of three neighbours in order of what is given, a smooth function has the middle one where the other two say, but for σ
and for how the curve bends between them. How much it bends is known from neighbours that are further apart: the bend
is as the square of the distance, and what is no function has none that shrinks.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from encoder_conformance.diagnosis.claims import claim
from encoder_conformance.diagnosis.identify.edits import parsed
from encoder_conformance.diagnosis.identify.samples import Sample
from encoder_conformance.diagnosis.in_sigma import held
from encoder_conformance.judging.records import Claim
from encoder_conformance.spec.axes import Array, P
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.stages import reads_of
from encoder_conformance.spec.steps import form_of

_FEWEST = 128
"""Values that neighbours can be found among."""
_FURTHER = 16
"""Times as far apart as neighbours are those that the bend is taken from, at most."""
_MOST_OUT = 0.1
"""The part of a curve that may have steps or corners."""
_FOLLOWS = 2 * constants().rms_limit
"""Times noise and bend that nine tenths of a curve's values may be out."""
_SHARP = 1e-2
"""Of the spread of a case's values: where σ and bend are more, the case says nothing of a curve."""
_BARS = "▁▂▃▄▅▆▇█"
_PLOTTED = 24


class Points(NamedTuple):
    """What is given, what was observed, and σ, of one case, [n] each."""

    given: P
    seen: P
    sigma: P


class _Neighbours(NamedTuple):
    """All points in order of what is given, and of each but the outermost: how far it is from between its neighbours,
    and how far the noise and the bend would have it, [n − 2]; `case` numbers its case."""

    given: P
    seen: P
    off: P
    due: P
    case: P


def curve(stage: str, of: str, cases: Sequence[Points]) -> Claim | None:
    """Describe the curve that the cases follow together, with a small plot; or say that it is none, by one of them."""
    if sum(each.given.size for each in cases) < _FEWEST:
        return None
    near = _neighbours(cases)
    by_case = [(near.off[near.case == at], near.due[near.case == at], each) for at, each in enumerate(cases)]
    sharp = [
        float(np.quantile(off / due, 1 - _MOST_OUT))
        for off, due, each in by_case
        if off.size and np.median(due) <= _SHARP * np.std(each.seen)
    ]
    if sharp and max(sharp) <= _FOLLOWS:
        at_one = "; ".join(filter(None, (f": {_values(near)}", ", ".join(_traits(near)))))
        plotted, text = _plotted(near)
        span = {"first": f"{near.given[0]:.3g}", "last": f"{near.given[-1]:.3g}"}
        plot = f"{text} (from {plotted.min():.3g} to {plotted.max():.3g})"
        return claim("curve", max(sharp), cases=len(sharp), stage=stage, of=of, points=at_one, plot=plot, **span)
    off = max((float(np.median(off / due)) for off, due, _ in by_case if off.size >= _FEWEST // 4), default=0.0)
    return claim("no-curve", off, stage=stage, of=of) if off > constants().max_limit else None


def _neighbours(cases: Sequence[Points]) -> _Neighbours:
    every = Points(*(np.concatenate(each) for each in zip(*cases, strict=True)))
    number = np.concatenate([np.full(each.given.size, at) for at, each in enumerate(cases)])
    # Sorted by what is given. Cases share inputs, and a point beside itself says nothing.
    _, order = np.unique(np.stack([every.given, every.seen]), axis=1, return_index=True)
    given, seen, sigma = (each[order] for each in every)
    off, noise, square = _between(given, seen, sigma, 1)
    far = min(_FURTHER, max(given.size // 16, 2))
    off_far, noise_far, square_far = _between(given, seen, sigma, far)
    with np.errstate(all="ignore"):
        bends = np.maximum(off_far - noise_far, 0.0) / square_far
    bend = float(np.quantile(bends[np.isfinite(bends)], 0.9)) if np.isfinite(bends).any() else 0.0
    return _Neighbours(given, seen, off, noise + bend * square, number[order][1:-1])


def _between(given: P, seen: P, sigma: P, step: int) -> tuple[P, P, P]:
    """Return how far each point is from the line between those `step` before and after it, its σ, and the product of
    its distances from the two, which the bend goes with."""
    at, low, high = slice(step, -step), slice(None, -2 * step), slice(2 * step, None)
    width = given[high] - given[low]
    part = np.divide(given[at] - given[low], width, out=np.full_like(width, 0.5), where=width > 0)
    off = np.abs(seen[at] - (1 - part) * seen[low] - part * seen[high])
    noise = np.sqrt(sigma[at] ** 2 + ((1 - part) * sigma[low]) ** 2 + (part * sigma[high]) ** 2)
    return off, np.maximum(noise, 1e-300), part * (1 - part) * width**2


def _values(near: _Neighbours) -> str:
    at = [at for at in (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0) if near.given[0] <= at <= near.given[-1]]
    return ", ".join(f"f({each:g}) = {float(np.interp(each, near.given, near.seen)):.3g}" for each in at)


def _plotted(near: _Neighbours) -> tuple[Array, str]:
    """Return the curve at equal distances, and as bars."""
    plotted = np.interp(np.linspace(near.given[0], near.given[-1], _PLOTTED), near.given, near.seen)
    levels = ((plotted - plotted.min()) / max(float(np.ptp(plotted)), 1e-300) * (len(_BARS) - 1)).round().astype(int)
    return plotted, "".join(_BARS[level] for level in levels)


def _traits(near: _Neighbours) -> Iterator[str]:
    """Yield whether f is odd or even, flat at an end, and where f(x) = x, as far as noise and bend can tell."""
    given, seen = near.given, near.seen
    due = constants().max_limit * float(np.median(near.due))
    reach = min(-given[0], given[-1])
    if reach > 0:
        at = np.linspace(0, reach, 101)
        there, mirrored = np.interp(at, given, seen), np.interp(-at, given, seen)
        limit = max(due, constants().max_limit * float(np.quantile(near.due, 0.9)))
        if np.abs(there - mirrored).max() <= limit:
            yield "even"
        elif np.abs(there + mirrored).max() <= limit:
            yield "odd"
    tenth = max(len(seen) // 10, 2)
    for name, end in (("left", seen[:tenth]), ("right", seen[-tenth:])):
        if float(np.ptp(end)) <= due:
            yield f"constant at the {name}, {float(np.median(end)):.4g}"
    same = np.abs(seen - given) <= due
    if same.mean() > 0.05:
        yield f"f(x) = x for {same.mean():.0%} of x, from {given[same].min():.3g} to {given[same].max():.3g}"


def activation(stage: str, samples: Sequence[Sample]) -> Claim | None:
    """Describe the curve of an activation, or that there is none."""
    if form_of(stage) != "activation":
        return None
    [source] = reads_of(stage, samples[0].evidence.case.layer)
    return curve(stage, source, [_points(sample, sample.operands[source]) for sample in samples])


def _points(sample: Sample, given: Array) -> Points:
    sigma = np.maximum(sample.sigma, sample.relative * np.abs(sample.observed))
    points = given.reshape(-1)[sample.positions], sample.observed, sigma
    finite = np.isfinite(points).all(axis=0)
    return Points(*(each[finite] for each in points))


def scores(stage: str, samples: Sequence[Sample]) -> Claim | None:
    """Describe scores that are a function of the specified score, or wrong by what positions alone decide."""
    if form_of(stage) != "scores":
        return None
    specified, points, errors = parsed(samples[0].specified.form), list[Points](), list[P]()
    for sample in samples:
        whole = sample.at_all_positions()
        computed = whole.whole(specified)
        if computed is None:
            return None
        points.append(_points(whole, computed))
        errors.append(_beside_positions(whole, computed))
    sigma = held(errors)
    if sigma is not None:
        return claim("by-positions", sigma, cases=len(errors), stage=stage)
    return curve(stage, "the specified score", points)


def _beside_positions(sample: Sample, computed: Array) -> P:
    """Return how far what was added is from its mean over items and heads, in σ, [n]; infinite where there is one of
    these alone, which says nothing."""
    added = sample.observed_whole() - computed
    sigma = np.full(sample.shape, np.nan)
    sigma.reshape(-1)[sample.positions] = np.maximum(sample.sigma, sample.relative * np.abs(sample.observed))
    compared = np.isfinite(added)
    count = compared.sum(axis=(0, 1))
    mean = np.where(compared, added, 0.0).sum(axis=(0, 1)) / np.maximum(count, 1)
    errors = ((added - mean) / sigma)[compared]
    return errors if count.max(initial=0) > 1 else np.full(1, np.inf)
