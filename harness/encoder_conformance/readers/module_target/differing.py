"""Whether two outputs of one module are the same but for rounding."""

import numpy as np

from encoder_conformance.spec.axes import Array

_ROUNDING = 1e-5
"""Of the output's largest number: what another order of the same sums leaves in float32, and no more."""


def differ(output: Array, other: Array) -> bool:
    """Whether two outputs of one shape differ by more than rounding, somewhere; NaN is as NaN is."""
    largest = np.abs(output[np.isfinite(output)]).max(initial=0.0)
    return not np.allclose(output, other, rtol=0, atol=_ROUNDING * largest, equal_nan=True)
