"""The statistics by which training is judged: each fails one conforming layer in a million (rule Q-3).

The distributions are scipy.special's, imported where they are needed: it takes a quarter of the command's start.
scipy.stats has the same tests, and takes longer to import than a framework.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from encoder_conformance.binomial import smaller_tail
from encoder_conformance.portable import Floats

FALSE_ALARM = 1e-6
Masks = npt.NDArray[np.floating]
"""1 where an element was kept, 0 where it was dropped, NaN where it does not show."""
Z_LIMIT = NormalDist().inv_cdf(1 - FALSE_ALARM / 2)
_AT_A_TIME = 1 << 16
_FEWEST = 200
_MANY = 10_000
"""Values from which the limiting distribution is the exact one to all digits that matter."""


@dataclass(frozen=True)
class Rate:
    """`seen` of `count` elements. `z` is how far that is from what was due, in standard deviations."""

    count: int
    seen: float
    z: float
    chance: float

    @property
    def wrong(self) -> bool:
        return self.chance < FALSE_ALARM


def rate(masks: Iterable[Masks], due: float) -> Rate:
    """Whether elements (0: dropped, NaN: not seen) are dropped at the rate that is due: an exact binomial test, with
    twice the smaller tail as its two sides."""
    seen = np.concatenate([mask[~np.isnan(mask)] for mask in masks])
    count, dropped = seen.size, int((seen == 0).sum())
    if not count:
        return Rate(0, float("nan"), inf, 0.0)
    spread = sqrt(count * due * (1 - due))
    z = (dropped - count * due) / spread if spread else (inf if dropped else 0.0)
    return Rate(count, dropped / count, z, min(1.0, 2 * smaller_tail(dropped, count, due)))


def dependence(pairs: Iterable[tuple[Masks, Masks]]) -> float:
    """How far pairs of elements that should have nothing to do with each other are from that, in standard deviations.

    The correlation of n independent pairs is normal with a standard deviation of 1 / sqrt(n). Rates are those seen, so
    that a wrong one is not taken for a dependence. 0 where there is nothing to compare.
    """
    both = [(a[seen], b[seen]) for a, b in pairs for seen in [~(np.isnan(a) | np.isnan(b))]]
    if not both:
        return 0.0
    a, b = (np.concatenate(side).astype(np.float64) for side in zip(*both, strict=True))
    del both
    if a.size < _FEWEST or not (spread_a := a.std()) or not (spread_b := b.std()):
        return 0.0
    a -= a.mean()
    b -= b.mean()
    a *= b  # in place: of a large layer there are a million pairs
    return float(np.mean(a) / (spread_a * spread_b) * sqrt(a.size))


def uniform(values: Floats, bound: float) -> float:
    """The chance of values like these, or less like a uniform draw in −bound … bound (Kolmogorov and Smirnov).

    Of few values it is twice the exact chance of one side, which at small chances is that of both sides.
    """
    from scipy.special import kolmogorov, smirnov

    due = values.reshape(-1) / (2 * bound)  # in place from here on: a large layer's weight has a million elements
    due += 0.5
    np.clip(due, 0, 1, out=due)
    due.sort()
    count = due.size
    furthest = max(_furthest(due, begin) for begin in range(0, count, _AT_A_TIME))
    if count > _MANY:
        return float(kolmogorov(furthest * sqrt(count)))
    return float(min(1.0, 2 * smirnov(count, furthest)))


def _furthest(due: Floats, begin: int) -> float:
    """The largest distance of the empirical distribution from the uniform one, of some values from `begin` on."""
    part = due[begin : begin + _AT_A_TIME]
    steps = np.arange(begin, begin + part.size + 1) / due.size
    return float(max((steps[1:] - part).max(), (part - steps[:-1]).max()))


def variance(values: Floats, bound: float) -> float:
    """How far the mean square is from bound² / 3, in standard deviations of a uniform draw's."""
    return float((np.mean(values**2) / bound**2 - 1 / 3) / sqrt(4 / 45 / values.size))
