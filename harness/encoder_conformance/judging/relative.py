"""The relative error of outputs: what says how good a file of integers is, of whose rounding σ says nothing."""

from collections.abc import Mapping

import numpy as np

from encoder_conformance.spec.axes import Array


def relative_error(found: Array, right: Array) -> float:
    """Root mean square of the error over that of the right values [*shape], where these are numbers; NaN where the
    found ones are none, or of another shape."""
    if found.shape != right.shape:
        return float("nan")
    known = np.isfinite(right.astype(np.float64))
    mine, theirs = found.astype(np.float64)[known], right.astype(np.float64)[known]
    if not theirs.size:
        return 0.0
    error, size = np.sqrt(np.mean(np.square(mine - theirs))), np.sqrt(np.mean(np.square(theirs)))
    return float(error / size) if size else float(error)


def largest_error(found: Mapping[str, Array], right: Mapping[str, Array]) -> float:
    """That of the output which is furthest off, of those of floating-point numbers; NaN is further than any number."""
    errors = [relative_error(found[name], value) for name, value in right.items() if value.dtype.kind not in "iub"]
    return float("nan") if any(np.isnan(errors)) else max(errors, default=0.0)
