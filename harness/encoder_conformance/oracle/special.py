"""The error function beyond float64: SciPy has it in float64 only, and a golden must be better than what it judges."""

import numpy as np

from encoder_conformance.spec.axes import Elementwise

_TWO_OVER_ROOT_PI = np.longdouble("1.1283791670955125738961589031215451716881")


def erf(x: Elementwise) -> Elementwise:
    """erf(x), elementwise, in the dtype of x: float64 by SciPy, long double by Maclaurin's series.

    erf x = 2/√π e^(−x²) Σ 2ⁿ x^(2n+1) / (2n+1)!!  (DLMF 7.6.2): all terms have one sign, so nothing cancels.
    From |x| = 7 on, 1 − |erf x| < 2^−74, less than long double can show.
    """
    if x.dtype != np.longdouble:
        import scipy.special  # half of the command's start, and only the oracle's own evaluation needs it

        return np.asarray(scipy.special.erf(x))
    inside = np.clip(x, -7, 7)
    term = inside.copy()
    total = inside.copy()
    n = 0
    while np.any(np.abs(term) > np.abs(total) * np.finfo(np.longdouble).eps / 4):
        n += 1
        term = term * (2 * inside * inside) / (2 * n + 1)
        total = total + term
    series = _TWO_OVER_ROOT_PI * np.exp(-inside * inside) * total
    return np.asarray(np.where(np.abs(x) < 7, series, np.sign(x)))
