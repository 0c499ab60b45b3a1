"""Products of long doubles by slices, against mpmath: no further off than a sum in that format."""

import numpy as np
import pytest
from mpmath import mp, mpf

from encoder_conformance.oracle.long_products import product

N, K, M = 40, 700, 610
RNG = np.random.default_rng(0)
SHORT = np.rint(RNG.standard_normal((K, M)) * 16) / 16
LONG = RNG.standard_normal((K, M))


def long(values: np.ndarray, more: float) -> np.ndarray:
    """Numbers with bits that float64 has not."""
    return values.astype(np.longdouble) * (1 + np.longdouble(more) * RNG.random(values.shape))


X = long(RNG.standard_normal((N, K)), 2.0**-54)


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        pytest.param(X, SHORT.astype(np.longdouble), id="portable"),
        pytest.param(X, LONG.astype(np.float32).astype(np.longdouble), id="float32"),
        pytest.param(X, LONG.astype(np.longdouble), id="float64"),
        pytest.param(X, long(LONG, 2.0**-54), id="long"),
        pytest.param(X * np.exp(8 * RNG.standard_normal((N, K))), SHORT.astype(np.longdouble), id="outliers"),
        pytest.param(np.where(np.arange(N)[:, None] % 2, 0, X), LONG.astype(np.longdouble) * 1e-300, id="zeros"),
    ],
)
def test_a_product_by_slices_is_as_exact_as_a_sum_of_long_doubles(x: np.ndarray, weight: np.ndarray) -> None:
    found = product(x, weight)
    with mp.workprec(400):
        for row, column in zip(RNG.integers(N, size=40), RNG.integers(M, size=40), strict=True):
            terms = [exact(x[row, k]) * exact(weight[k, column]) for k in range(K)]
            bound = K * mpf(2) ** -64 * exact(np.abs(x[row]).max()) * exact(np.abs(weight[:, column]).max())
            assert abs(exact(found[row, column]) - mp.fsum(terms)) <= bound


def exact(value: np.longdouble) -> mpf:
    high = float(value)
    return mpf(high) + mpf(float(value - np.longdouble(high)))


def test_what_is_not_finite_stays_where_it_is() -> None:
    x = X.copy()
    x[3, 5] = np.inf
    x[7, 9] = np.nan
    with np.errstate(invalid="ignore"):
        found = product(x, SHORT.astype(np.longdouble))
    assert np.flatnonzero(~np.isfinite(found).all(1)).tolist() == [3, 7]
