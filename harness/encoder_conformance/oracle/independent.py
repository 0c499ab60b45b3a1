"""The number of independent errors in a tensor, and how much larger a unit few of them need (C-8)."""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from encoder_conformance.spec.axes import Array, Elementwise, P

ENOUGH = 13
"""The root mean square of so many independent errors is above 2 σ, `rms_limit`, once in a million."""

ONCE_IN = 1e-6
_SAMPLED = 512
_GOLDEN_RATIO = 0.6180339887498949


def sampled(tensor: Elementwise) -> P:
    """At most 512 elements of a tensor of any shape, flat, spread over rows and columns: correlated errors show.

    Multiples of the golden ratio, modulo 1, times the size. A constant stride may be the length of a row, and take one
    column, whose errors do move together.
    """
    flat = tensor.reshape(-1)
    if flat.size <= _SAMPLED:
        return flat
    return flat[(np.arange(_SAMPLED) * _GOLDEN_RATIO % 1 * flat.size).astype(np.int64)]


def independent_numbers(errors: Sequence[Array], condition: Array) -> float:
    """n = 2·mean(r)²/var(r), where r is the mean square error of a run in units of κ: χ²/n varies by 2/n.

    Parameters: `errors` [elements] of each run, and the `condition` [elements] measured from them, in one unit. At
    least 1, and infinity where nothing can be told: no noise, one run, or values that are not finite.
    """
    noisy = np.isfinite(condition) & (condition > 0)
    if len(errors) < 2 or not noisy.any():
        return float("inf")
    r = np.mean((np.stack(errors)[:, noisy] / condition[noisy]) ** 2, axis=1)
    variance = float(np.var(r, ddof=1))
    return max(1.0, 2 * float(np.mean(r)) ** 2 / variance) if variance > 0 else float("inf")


def widening(numbers: float) -> float:
    """The factor by which κ grows: the rms that so many errors exceed once in a million, over that of ENOUGH."""
    return 1.0 if numbers >= ENOUGH else _exceeded(numbers) / _exceeded(ENOUGH)


def _exceeded(numbers: float) -> float:
    from scipy.special import chdtri  # half of the command's start, if it were imported above

    return sqrt(float(chdtri(numbers, ONCE_IN)) / numbers)
