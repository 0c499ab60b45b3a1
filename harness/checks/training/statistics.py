"""The statistical tests of training, each with a false alarm rate of one in a million (rule Q-3).

The distributions are scipy.special's, imported on use, since the import takes a quarter of the command's start.
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
"""1 where an element was kept, 0 where it was dropped, NaN where it is not visible."""
Z_LIMIT = NormalDist().inv_cdf(1 - FALSE_ALARM / 2)
_AT_A_TIME = 1 << 16
_FEWEST = 200
_MANY = 10_000
"""Sample size from which the limiting distribution is as good as the exact one."""


@dataclass(frozen=True)
class Rate:
    """The share `observed` of `count` elements that were dropped.

    `z` is its distance from the expected rate in standard deviations, `chance` the p-value.
    """

    count: int
    observed: float
    z: float
    chance: float

    @property
    def wrong(self) -> bool:
        return self.chance < FALSE_ALARM


def rate(masks: Iterable[Masks], expected: float) -> Rate:
    """An exact binomial test of the dropout rate of `masks` against `expected`; two-sided, twice the smaller tail."""
    visible = np.concatenate([mask[~np.isnan(mask)] for mask in masks])
    count, dropped = visible.size, int((visible == 0).sum())
    if not count:
        return Rate(0, float("nan"), inf, 0.0)
    spread = sqrt(count * expected * (1 - expected))
    z = (dropped - count * expected) / spread if spread else (inf if dropped else 0.0)
    return Rate(count, dropped / count, z, min(1.0, 2 * smaller_tail(dropped, count, expected)))


def dependence(pairs: Iterable[tuple[Masks, Masks]]) -> float:
    """The z-score of the correlation of pairs of elements that should be independent.

    The correlation of n independent pairs is normal with a standard deviation of 1 / sqrt(n). The means are observed,
    so that a wrong rate does not count as dependence. Returns 0 if there are too few pairs or no variance.
    """
    both = [(a[visible], b[visible]) for a, b in pairs for visible in [~(np.isnan(a) | np.isnan(b))]]
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
    """The p-value of a Kolmogorov-Smirnov test that `values` are uniform in −bound … bound.

    For few values it is twice the exact one-sided p-value, which for small ones equals the two-sided one.
    """
    from scipy.special import kolmogorov, smirnov

    quantiles = values.reshape(-1) / (2 * bound)  # in place from here on: a large layer's weight has a million elements
    quantiles += 0.5
    np.clip(quantiles, 0, 1, out=quantiles)
    quantiles.sort()
    count = quantiles.size
    largest_distance = max(_largest_distance(quantiles, begin) for begin in range(0, count, _AT_A_TIME))
    if count > _MANY:
        return float(kolmogorov(largest_distance * sqrt(count)))
    return float(min(1.0, 2 * smirnov(count, largest_distance)))


def _largest_distance(quantiles: Floats, begin: int) -> float:
    """The largest distance of the empirical distribution from the uniform one, among values from `begin` on."""
    part = quantiles[begin : begin + _AT_A_TIME]
    steps = np.arange(begin, begin + part.size + 1) / quantiles.size
    return float(max((steps[1:] - part).max(), (part - steps[:-1]).max()))


def variance(values: Floats, bound: float) -> float:
    """The z-score of the mean square of `values` against bound² / 3, that of a uniform distribution."""
    return float((np.mean(values**2) / bound**2 - 1 / 3) / sqrt(4 / 45 / values.size))
