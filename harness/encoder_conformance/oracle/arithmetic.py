"""The few operations that the oracle is written over: exact, or with Monte-Carlo rounding (rule C-1 to C-4).

The oracle's equations call these and nothing else: the code that computes a layer also measures the rounding noise of
the computation.
"""

import itertools
from collections.abc import Callable
from functools import cached_property, lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from encoder_conformance.oracle import arithmetic as special
from encoder_conformance.oracle.long_products import product
from encoder_conformance.spec.axes import KM, Array, Elementwise, M, Mapped, P, Reduced, Rows
from encoder_conformance.spec.portable import seed, uniform

ELEMENTARY = 4.0
"""exp, log, sin, cos, tanh and erf are not correctly rounded anywhere: vector libraries promise 1 or 2 units in the
last place, which is 4 u (the CUDA Programming Guide's table, SLEEF's _u10 and _u20; rule C-1)."""


class Arithmetic:
    """Exact arithmetic: each operation as the dtype of its operands gives it."""

    def __init__(
        self, dtype: npt.DTypeLike = np.float64, draw: int = 0, stored_in: npt.DTypeLike | None = None
    ) -> None:
        """`draw` numbers the random draws of wrong forms, as of dropout; right forms draw nothing. `stored_in`: the
        format that `as_stored` rounds to."""
        self.dtype, self.draw = np.dtype(dtype), draw
        self.stored_in = None if stored_in is None else np.dtype(stored_in)

    def as_stored(self, total: Elementwise) -> Elementwise:
        """A sum with a term so large that a format loses the other one: its rounding is an error, and no noise."""
        return total if self.stored_in is None else total.astype(self.stored_in).astype(self.dtype)

    @cached_property
    def float32(self) -> "Arithmetic":
        """The arithmetic of a wrong form in float32: one order of roundings, or random ones in further draws.

        One order may be a lucky one: a mean that happens to be exact says nothing of another's.
        """
        return Rounded(FLOAT32_ROUNDOFF, self.draw) if self.draw else Float32()

    def exact(self, values: npt.ArrayLike) -> Elementwise:
        """A portable tensor, which every format represents exactly."""
        return np.asarray(values, dtype=self.dtype)

    def constant(self, value: Elementwise | float) -> Elementwise:
        """A real constant that a format has to round."""
        return self._rounded(np.asarray(value, dtype=self.dtype))

    def add(self, x: Elementwise, y: Elementwise) -> Elementwise:
        return self._rounded(x + y)

    def subtract(self, x: Elementwise, y: Elementwise) -> Elementwise:
        return self._rounded(x - y)

    def multiply(self, x: Elementwise, y: Elementwise) -> Elementwise:
        return self._rounded(x * y)

    def divide(self, x: Elementwise, y: Elementwise) -> Elementwise:
        return self._rounded(x / y)

    def sqrt(self, x: Elementwise) -> Elementwise:
        return self._rounded(np.sqrt(x))

    def exp(self, x: Elementwise) -> Elementwise:
        return self._rounded(np.exp(x), ELEMENTARY)

    def log(self, x: Elementwise) -> Elementwise:
        return self._rounded(np.log(x), ELEMENTARY)

    def sin(self, x: Elementwise) -> Elementwise:
        return self._rounded(np.sin(x), ELEMENTARY)

    def cos(self, x: Elementwise) -> Elementwise:
        return self._rounded(np.cos(x), ELEMENTARY)

    def tanh(self, x: Elementwise) -> Elementwise:
        return self._rounded(np.tanh(x), ELEMENTARY)

    def erf(self, x: Elementwise) -> Elementwise:
        return self._rounded(special.erf(x), ELEMENTARY)

    def sum(self, x: Elementwise, axis: int | tuple[int, ...], keepdims: bool = True) -> Reduced:
        total = x.sum(axis=axis, keepdims=keepdims)
        terms = x.size // max(total.size, 1)
        return self._rounded_sum(total, terms, 0.0, lambda: (x * x).sum(axis=axis, keepdims=keepdims))

    def mean(self, x: Elementwise) -> Reduced:
        """The mean over the last axis, which is kept."""
        return self.divide(self.sum(x, -1), self.exact(float(x.shape[-1])))

    def matmul(self, x: Rows, y: KM) -> Mapped:
        if y.ndim == 2 and y.dtype == np.longdouble:
            total = product(x.reshape(-1, x.shape[-1]), y).reshape(*x.shape[:-1], y.shape[1])
        else:
            total = x @ y
        return self._rounded_sum(total, x.shape[-1], 1.0, lambda: (x * x) @ (y * y))

    def affine(self, x: Rows, weight: KM, bias: M) -> Mapped:
        """x @ weight + bias as one sum that begins with the bias, as a matrix product that accumulates onto it does."""
        rows, (K, F) = x.reshape(-1, x.shape[-1]), weight.shape  # one product, for NumPy reads the weight for each item
        total = product(rows, weight) if weight.dtype == np.longdouble else rows @ weight
        shape = *x.shape[:-1], F
        return self._rounded_sum(
            total.reshape(shape), K, 1.0, lambda: ((rows * rows) @ (weight * weight)).reshape(shape), begin=bias
        )

    def _rounded(self, result: Elementwise, times: float = 1.0) -> Elementwise:
        return result

    def _rounded_sum(
        self,
        total: Elementwise,
        terms: int,
        products: float,
        squares: Callable[[], Array],
        begin: Elementwise | None = None,
    ) -> Elementwise:
        """`begin` and `terms` terms that sum to `total`, their squares to `squares()`.

        `products` is 1 when each term was rounded too, and else 0.
        """
        return total if begin is None else total + begin


class Float32(Arithmetic):
    """Each operation rounded to float32, sums from the first term to the last: the same bits on every machine.

    A matrix library adds in an order of its own, and so do NumPy's sums and elementary functions from one processor to
    the next; forecasts that are frozen in a page may not hang on that.
    """

    def __init__(self) -> None:
        super().__init__(np.float32)

    def exp(self, x: Elementwise) -> Elementwise:
        return np.exp(x.astype(np.float64)).astype(np.float32)

    def log(self, x: Elementwise) -> Elementwise:
        return np.log(x.astype(np.float64)).astype(np.float32)

    def erf(self, x: Elementwise) -> Elementwise:
        return special.erf(x.astype(np.float64)).astype(np.float32)

    def sum(self, x: Elementwise, axis: int | tuple[int, ...], keepdims: bool = True) -> Reduced:
        assert isinstance(axis, int)
        return np.cumsum(x, axis).take([-1] if keepdims else -1, axis)  # NumPy accumulates one term after another

    def matmul(self, x: Rows, y: KM) -> Mapped:
        total = x[..., :, 0, None] * y[..., 0, None, :]
        for k in range(1, x.shape[-1]):
            total += x[..., :, k, None] * y[..., k, None, :]
        return np.asarray(total)

    def affine(self, x: Rows, weight: KM, bias: M) -> Mapped:
        return self.add(self.matmul(x, weight), bias)


FLOAT32_ROUNDOFF = 2.0**-24


class Rounded(Arithmetic):
    """Monte-Carlo arithmetic (Parker, 1997): each result is disturbed as one rounding of unit roundoff u would.

    One `run` is one sample: two runs with the same number draw the same disturbances.
    """

    def __init__(self, roundoff: float, run: int, stored_in: npt.DTypeLike | None = None) -> None:
        super().__init__(np.float64, stored_in=stored_in)
        self.roundoff, self.run = roundoff, run
        self._calls = itertools.count()

    def _disturbance(self, shape: tuple[int, ...]) -> Elementwise:
        """Uniform in −1 … 1, drawn by the portable generator from the run and the operation's number (C-2). Not to be
        written to: another operation may get the same array."""
        count, call = prod(shape), next(self._calls)
        if count > _KEPT_UP_TO:
            return _drawn(self.run, call, count).reshape(shape)
        whole = 1 << max(count - 1, 0).bit_length()  # cases of nearly one size share a draw, which begins with theirs
        return _kept(self.run, call, whole)[:count].reshape(shape)

    def _rounded(self, result: Elementwise, times: float = 1.0) -> Elementwise:
        factor = np.asarray(self._disturbance(result.shape) * (times * self.roundoff))
        factor += 1.0
        factor *= result
        return factor

    def _rounded_sum(
        self,
        total: Elementwise,
        terms: int,
        products: float,
        squares: Callable[[], Array],
        begin: Elementwise | None = None,
    ) -> Elementwise:
        """Recursive summation rounds each partial sum once (Higham, Accuracy and Stability, §4.2).

        Seen from its end, a partial sum after k of K terms is k/K of the total plus a bridge of variance
        k(1 − k/K) times the mean square of the terms; summed over k the squares come to K/3 total² + K/6 Σ terms².
        From a beginning b each is b more: K(b² + b total + total²/3) + K/6 Σ terms², and there are K, not K − 1.
        """
        sum_of_squares = squares()
        partial = total * total / 3.0 + sum_of_squares / 6.0
        if begin is not None:
            partial, total = partial + begin * (begin + total), total + begin
        roundings = max(terms - 1, 0) if begin is None else terms
        deviation = np.sqrt(products * sum_of_squares + roundings * partial)
        deviation *= self.roundoff
        rounded = np.asarray(self._disturbance(total.shape) * deviation)
        rounded += total
        return rounded


def _drawn(run: int, call: int, count: int) -> P:
    """[count] uniform in −1 … 1: the disturbances of one operation in one run. The first are the same for any count."""
    return uniform(seed(f"noise {run} {call}"), count, 1.0)


_kept = lru_cache(maxsize=4096)(_drawn)
"""A layer's cases draw the same numbers, for one run and operation: a small array takes as long to draw as to use."""
_KEPT_UP_TO = 4096
"""Elements. 4,096 arrays of a layer of 64 features hold some 40 MB, and at most 128."""


_TWO_OVER_ROOT_PI = np.longdouble("1.1283791670955125738961589031215451716881")


def erf(x: Elementwise) -> Elementwise:
    """erf(x), elementwise, in the dtype of x: float64 by SciPy, long double by Maclaurin's series.

    erf x = 2/√π e^(−x²) Σ 2ⁿ x^(2n+1) / (2n+1)!!  (DLMF 7.6.2): all terms have one sign, so nothing cancels.
    From |x| = 7 on, 1 − |erf x| < 2^−74, less than long double can show.
    """
    if x.dtype != np.longdouble:
        import scipy.special  # half of the command's start, and only the oracle's own evaluation needs it

        return np.asarray(scipy.special.erf(x))
    inside = np.abs(x) < 7
    small = x[inside]
    result = np.asarray(np.sign(x))
    result[inside] = _TWO_OVER_ROOT_PI * np.exp(-small * small) * _series_of_erf(small)
    return np.asarray(result)


def _series_of_erf(x: Rows) -> Rows:
    """Σ 2ⁿ x^(2n+1) / (2n+1)!! of [N] numbers, long double.

    Each number leaves when a further term would change no bit of its sum: 1 takes 25 terms, 7 takes 170.
    """
    total, n = x.copy(), 0
    left, term, twice_squared = np.arange(x.size), x, 2 * x * x
    while left.size:
        n += 1
        term = term * twice_squared / (2 * n + 1)
        sums = total[left] = total[left] + term
        goes_on = np.abs(term) > np.abs(sums) * (np.finfo(np.longdouble).eps / 4)
        left, term, twice_squared = left[goes_on], term[goes_on], twice_squared[goes_on]
    return total
