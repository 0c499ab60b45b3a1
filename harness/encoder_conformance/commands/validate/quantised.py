"""Whether integer weights are the rounding of what they were made from."""

import numpy as np

from encoder_conformance.spec.axes import Array

MOST = 1.001
"""Steps: half of one for rounding, the rest where the last integer is cut off, as +8 is in int4."""
FINE = frozenset({"int8", "uint8", "int16", "uint16", "int32"})
"""Formats fine enough to tell a factor from their own rounding."""
SURE = 6.0
"""Standard deviations, of a factor or a shift that rounding alone may show."""


def unlike_rounding(value: Array, made_from: Array, step: float, format: str) -> str:
    """How a weight differs from what it was made from, other than by rounding; "" where it does not.

    Both have one shape; `step` is the distance of the numbers that two neighbouring integers stand for. The rounding of
    n numbers is even noise of step/√12: of the mean it leaves 1/√n, and of the factor that over the numbers' spread.
    """
    due, given = made_from.astype(np.float64), value.astype(np.float64)
    if format in FINE and (systematic := _systematic(given, due, step)):
        return systematic
    largest = float(np.abs(given - due).max())
    if largest <= MOST * step:
        return ""
    return f"is not the {format} of what it was made from: up to {largest / step:.3g} steps away"


def _systematic(given: Array, due: Array, step: float) -> str:
    """A factor or a shift, by least squares, which leaves no more than rounding does; "" where neither is there."""
    spread, noise = float(np.std(due)), step / np.sqrt(12 * due.size)
    if not spread:
        return ""
    factor = float(np.mean((given - given.mean()) * (due - due.mean()))) / spread**2
    shift = float(given.mean() - factor * due.mean())
    if np.std(given - factor * due) > 0.5 * step * max(1.0, abs(factor)):
        return ""
    if abs(factor - 1) > SURE * noise / spread:
        return f"is {factor:.4g} times what it was made from: a wrong {'sign' if factor < 0 else 'scale'}"
    if abs(shift) > SURE * noise * np.hypot(1.0, due.mean() / spread):  # the factor's own error moves it, too
        return f"is shifted by {shift:.3g} from what it was made from: a wrong zero point"
    return ""
