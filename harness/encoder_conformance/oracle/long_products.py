"""Products of matrices of long doubles by those of doubles: a BLAS has no others, and NumPy's own are a hundred times
slower.

Each factor is a sum of slices of so few bits that the product of two slices is exact in float64, whatever the order of
its sum (Ozaki, Ogita, Oishi, Rump, Error-free transformations of matrix multiplication, Numerical Algorithms 59, 2012).
"""

from collections.abc import Iterator

import numpy as np

from encoder_conformance.spec.axes import KM, Array, Mapped, Rows

_LARGE = 1 << 24
"""Multiplications from which slices pay; below, the order of NumPy's sum gives the goldens their last bit."""
_BITS = 76
"""Of a product, below its row's and its column's largest: a long double has 64."""
_OF_DOUBLE = 53
_TWO = np.longdouble(2)
_FEW = (8, 12, 16, 24)
"""Bits that parameters often have: portable ones have 8."""


def product(x: Rows, weight: KM) -> Mapped:
    """x [N, K] @ weight [K, M], long double, off by no more than a sum in that format is: K 2⁻⁶⁴ times a row's largest
    number times a column's."""
    (N, K), M = x.shape, weight.shape[1]
    if N * K * M < _LARGE or not (np.isfinite(x).all() and np.isfinite(weight).all()):
        return np.asarray(x @ np.asfortranarray(weight))  # NumPy goes down the columns, which are to lie together
    free = _OF_DOUBLE - (K - 1).bit_length()
    mine, of_rows = _scaled(x, 1)
    others, of_columns = _scaled(weight, 0)
    bits = next((b for b in _FEW if b <= free // 2 and _fits(others, b)), free // 2)
    left, right = list(_slices(mine, free - bits)), list(_slices(others, bits))
    kept = [
        (one_at + other_at, one, other)
        for one_at, one in left
        for other_at, other in right
        if one_at + other_at < _BITS + free
    ]
    total = np.zeros((N, M), np.longdouble)
    for at, one, other in sorted(kept, key=lambda each: -each[0]):  # the smallest first
        total += (one @ other).astype(np.longdouble) * _TWO**-at
    return total * _TWO**of_rows * _TWO**of_columns


def _scaled(values: Rows, axis: int) -> tuple[Rows, Array]:
    """The numbers [N, M], those along the axis divided by one power of two, so that none is 1 or more; the powers."""
    _, power = np.frexp(np.abs(values).max(axis, keepdims=True))
    scaled = values * _TWO**-power
    short = scaled.astype(np.float64)  # as parameters are, and faster
    return short if np.array_equal(short, scaled) else scaled, power


def _fits(values: Rows, bits: int) -> bool:
    """Whether the numbers [N, M] below 1 have no bits after so many."""
    widened = values * 2.0**bits
    return bool((widened == np.rint(widened)).all())


def _slices(values: Rows, bits: int) -> Iterator[tuple[int, Rows]]:
    """Integers in float64 that sum to the numbers [N, M] below 1, each divided by 2 to the power beside it."""
    left, at = values, 0
    while at < _BITS and left.any():
        left, at = left * 2.0**bits, at + bits
        whole = np.rint(left)
        left = left - whole
        yield at, whole.astype(np.float64)
