"""The statistical tests of training, each with a false alarm rate of one in a million (rule Q-3).

The distributions are scipy.special's, imported on use, since the import takes a quarter of the command's start.
scipy.stats has the same tests, and takes longer to import than a framework.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from math import inf, lgamma, log, log1p, sqrt
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

FALSE_ALARM = 1e-6
Masks = npt.NDArray[np.uint8]
"""DROPPED, KEPT, or HIDDEN where it is not visible which."""
DROPPED, KEPT, HIDDEN = np.uint8(0), np.uint8(1), np.uint8(2)
Z_LIMIT = NormalDist().inv_cdf(1 - FALSE_ALARM / 2)
_ROUNDING = 1e-3
"""More than the error of the logarithm of a probability, of up to 10¹⁰ numbers."""
_AT_A_TIME = 1 << 14
_IN_CACHE = 1 << 16
_FEWEST = 200
_MANY = 10_000
"""Sample size from which the limiting distribution is as good as the exact one."""


def smaller_tail(dropped: int, count: int, rate: float) -> float:
    """The smaller tail probability of the binomial distribution with `count` trials and probability `rate`.

    The lower tail is P(X ≤ dropped), the upper tail P(X ≥ dropped).
    """
    from scipy.special import bdtr, bdtrc

    return float(min(bdtr(dropped, count, rate), bdtrc(dropped - 1, count, rate) if dropped else 1.0))


def is_likely(dropped: int, count: int, rate: float, least: float) -> bool:
    """Whether the smaller tail probability is at least so large. Both tails have the probability of the number itself,
    which is enough of most, and imports nothing."""
    if 0 < rate < 1:
        ways = lgamma(count + 1) - lgamma(dropped + 1) - lgamma(count - dropped + 1)
        if ways + dropped * log(rate) + (count - dropped) * log1p(-rate) > log(least) + _ROUNDING:
            return True
    return smaller_tail(dropped, count, rate) >= least


@dataclass(frozen=True)
class Rate:
    """The share of elements dropped, its distance `z` from the expected one in standard deviations, and the p-value."""

    observed: float
    z: float
    chance: float

    @property
    def wrong(self) -> bool:
        return self.chance < FALSE_ALARM


def rate(masks: Iterable[Masks], expected: float) -> Rate:
    """An exact binomial test of the dropout rate of `masks` against `expected`; two-sided, twice the smaller tail."""
    counts = [(np.count_nonzero(mask == DROPPED), np.count_nonzero(mask != HIDDEN)) for mask in masks]
    dropped, count = (int(each) for each in np.sum(counts, axis=0))
    if not count:
        return Rate(float("nan"), inf, 0.0)
    spread = sqrt(count * expected * (1 - expected))
    z = (dropped - count * expected) / spread if spread else (inf if dropped else 0.0)
    return Rate(dropped / count, z, min(1.0, 2 * smaller_tail(dropped, count, expected)))


def dependence(pairs: Iterable[tuple[Masks, Masks]]) -> float:
    """The z-score of the correlation of pairs of elements that should be independent.

    The correlation of n independent pairs is normal with a standard deviation of 1 / sqrt(n). The means are observed,
    so that a wrong rate does not count as dependence. Returns 0 if there are too few pairs or no variance.
    """
    count = kept_a = kept_b = kept_both = 0
    for a, b in (part for pair in pairs for part in _in_parts(*pair)):
        visible = ((a | b) < HIDDEN).view(np.uint8)  # 1 and not 0 where both are: KEPT is 1 and HIDDEN is 2
        visible_a = a & visible
        count += _ones(visible)
        kept_a += _ones(visible_a)
        kept_b += _ones(b & visible)
        kept_both += _ones(b & visible_a)
    if count < _FEWEST or not (spread_a := kept_a * (count - kept_a)) or not (spread_b := kept_b * (count - kept_b)):
        return 0.0
    return (count * kept_both - kept_a * kept_b) / sqrt(spread_a) / sqrt(spread_b) * sqrt(count)


def _in_parts(a: Masks, b: Masks) -> Iterator[tuple[Masks, Masks]]:
    """Two masks of one shape in parts that fit a processor's cache, along their first axis."""
    step = max(1, _IN_CACHE * len(a) // max(a.size, 1))
    for begin in range(0, len(a), step):
        yield a[begin : begin + step], b[begin : begin + step]


def _ones(mask: Masks) -> int:
    """The number of ones in a mask of ones and zeros."""
    return int(np.count_nonzero(mask.view(np.bool_)))


def uniform(values: npt.NDArray[np.floating], bound: float) -> float:
    """The p-value of a Kolmogorov-Smirnov test that `values` are uniform in −bound … bound.

    For few values it is twice the exact one-sided p-value, which for small ones equals the two-sided one.
    """
    from scipy.special import kolmogorov, smirnov

    ordered = np.sort(values, axis=None)  # in its own format: a large layer's weight has a million elements
    count = ordered.size
    distribution = np.clip(ordered.astype(np.float64) / (2 * bound) + 0.5, 0, 1)
    steps = np.arange(count + 1) / count
    largest_distance = float(max((steps[1:] - distribution).max(), (distribution - steps[:-1]).max()))
    if count > _MANY:
        return float(kolmogorov(largest_distance * sqrt(count)))
    return float(min(1.0, 2 * smirnov(count, largest_distance)))


def is_surely_uniform(values: npt.NDArray[np.floating], bound: float) -> bool:
    """Whether `uniform` certainly gives no p-value below FALSE_ALARM. It counts, and sorts nothing.

    Within a bin, the empirical distribution lies between its values at the two ends, and so does the uniform one.
    """
    exact = np.promote_types(values.dtype, np.float32)
    flat, counts = values.reshape(-1), np.zeros(_BINS, np.int64)
    for begin in range(0, flat.size, _AT_A_TIME):
        part = flat[begin : begin + _AT_A_TIME].astype(exact)
        part *= _BINS / (2 * bound)
        part += _BINS / 2
        np.clip(part, 0, _BINS - 1, out=part)
        counts += np.bincount(part.astype(np.intp), minlength=_BINS)
    observed = np.concatenate([[0], np.cumsum(counts)]) / flat.size
    ends = np.arange(_BINS + 1) / _BINS
    farthest = max((observed[1:] - ends[:-1]).max(), (ends[1:] - observed[:-1]).max())
    rounding = 16 * float(np.finfo(exact).eps)  # carries a value at most this far into the next bin
    return bool(farthest + rounding < _alarming_distance(flat.size))


_BINS = 1 << 12


@cache
def _alarming_distance(count: int) -> float:
    """The distance at which `uniform` gives FALSE_ALARM."""
    from scipy.special import kolmogi, smirnovi

    if count > _MANY:
        return float(kolmogi(FALSE_ALARM)) / sqrt(count)
    return float(smirnovi(count, FALSE_ALARM / 2))


def variance(values: npt.NDArray[np.floating], bound: float) -> float:
    """The z-score of the mean square of `values` against bound² / 3, that of a uniform distribution."""
    return (mean_square(values) / bound**2 - 1 / 3) / sqrt(4 / 45 / values.size)


def mean_square(values: npt.NDArray[np.floating]) -> float:
    """The mean square in float64, whatever the format of the values."""
    flat, total = values.reshape(-1), 0.0
    for begin in range(0, flat.size, _AT_A_TIME):
        part = flat[begin : begin + _AT_A_TIME].astype(np.float64)
        total += float(np.square(part, out=part).sum())  # a product would occupy every core for nothing
    return total / flat.size
