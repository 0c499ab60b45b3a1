"""What a step computes in the place of another's, told by their values alone: of no step a layer has to be known."""

from collections.abc import Callable, Iterator, Sequence

import ml_dtypes
import numpy as np

from encoder_conformance.diagnosis.in_sigma import rms
from encoder_conformance.spec.axes import Array, Bools

_FORMATS = (("float16", np.dtype(np.float16)), ("bfloat16", np.dtype(ml_dtypes.bfloat16)))
_EXACT = 1e-12
"""Of a value's root of the mean square: what float64 makes of it in a few operations, at most."""
SAME = "{}"
"""It is the other."""
_HIDES = 1000.0
"""How much larger than every other number one is that hides a position, and its size at least: −1e9, −∞, a format's
least. It says that there is nothing, and is another in every format; a noise in proportion to it would be larger than
all that is beside it."""


def hidden_in(value: Array) -> Bools:
    """Which numbers [*shape] are no number but hide a position."""
    wide = value.astype(np.float64)
    if not wide.size or wide.min() >= -_HIDES:  # as nearly every value, and all weights
        return np.zeros(wide.shape, np.bool_)
    ordered = np.sort(np.abs(wide[wide != 0.0]), axis=None)
    with np.errstate(over="ignore"):
        gaps = np.flatnonzero(ordered[1:] > np.maximum(_HIDES * ordered[:-1], _HIDES))
    return np.asarray(wide < -(ordered[gaps[-1]] if gaps.size else np.finfo(np.float64).max))


Test = Callable[[Array, Array, float], Iterator[str]]


def what_it_computes(found: Array, right: Array, limit: float, tests: Sequence[Test] | None = None) -> str:
    """What `found` is of `right`, which `{}` stands for, both [*shape], within rms `limit`; "" where nothing of this is
    known to be so."""
    if found.shape != right.shape or not found.ndim:
        return ""
    mine, theirs = found.astype(np.float64), right.astype(np.float64)
    hidden, due = hidden_in(mine), hidden_in(theirs)
    mine, theirs = np.where(hidden & due, 0.0, mine), np.where(hidden & due, 0.0, theirs)
    if (hidden != due).any():
        is_same = rms((mine - theirs)[~(hidden | due)]) <= limit
        return f"{{}}, but {_hides(hidden & ~due, due & ~hidden)}" if is_same else ""
    lost = np.isfinite(theirs) & ~np.isfinite(mine)
    if lost.any():
        return f"no number in {int(lost.sum())} of {mine.size} places"
    if not (np.isfinite(mine).all() and np.isfinite(theirs).all()):
        return ""
    if rms(mine - theirs) <= limit:
        return SAME
    return next((said for test in tests or (*WHOLE, partly) for said in test(mine, theirs, limit)), "")


def _hides(more: Bools, less: Bools) -> str:
    """Places [*shape] that are hidden and should not be, and the other way round."""
    counts = ((int(more.sum()), "more"), (int(less.sum()), "fewer"))
    return " and ".join(f"{count} of {more.size} places {which} are hidden" for count, which in counts if count)


def by_a_number(found: Array, right: Array, limit: float) -> str:
    """What `found` is of `right`, both [*shape], by one number, within rms `limit` or what float64 makes; or ""."""
    if found.size != right.size or not (np.isfinite(found).all() and np.isfinite(right).all()):
        return ""
    mine, theirs = (value.astype(np.float64).ravel() for value in (found, right))
    if hidden_in(mine).any() or hidden_in(theirs).any():
        return ""
    return next(_number(mine, theirs, max(limit, _EXACT * rms(theirs))), "")


def _number(mine: Array, theirs: Array, limit: float) -> Iterator[str]:
    """One factor of all [*shape], or one number added to all."""
    square = float(np.vdot(theirs, theirs))
    factor = float(np.vdot(mine, theirs)) / square if square else 0.0
    if factor and rms(mine - factor * theirs) <= limit * abs(factor):
        yield f"{factor:.6g} times {{}}"
    error = mine - theirs
    if rms(error - error.mean()) <= limit:
        yield f"{{}} plus {float(error.mean()):.4g}"


def _by_feature(mine: Array, theirs: Array, limit: float) -> Iterator[str]:
    """One number added for each feature, the last axis of [*shape]."""
    by_feature = (mine - theirs).reshape(-1, mine.shape[-1])
    if len(by_feature) > 2 and rms(by_feature - by_feature.mean(0)) <= limit:
        yield "{} plus a constant for each feature"


def _elsewhere(mine: Array, theirs: Array, limit: float) -> Iterator[str]:
    """The same features of [*shape] in another order, or the items, positions or heads."""
    for axis in range(mine.ndim):
        one, other = (np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in (mine, theirs))
        if 1 < len(one) <= 4096 and one.shape[1] > 1:
            order = [int(np.argmin(np.abs(other - row).mean(1))) for row in one[:64]]
            if len({*order}) == len(order) and order != [*range(len(order))] and rms(one[:64] - other[order]) <= limit:
                yield f"{{}} with its axis {axis} in another order"


def _rounded(mine: Array, theirs: Array, limit: float) -> Iterator[str]:
    """[*shape] in a narrower format."""
    for name, kind in _FORMATS:
        with np.errstate(over="ignore"):
            narrow = theirs.astype(kind).astype(np.float64)
        # An edge between two numbers of the format goes one way or the other.
        if np.isfinite(narrow).all() and np.mean(np.abs(mine - narrow) <= 4 * limit) > 0.99:
            yield f"{{}} in {name}"


def partly(mine: Array, theirs: Array, limit: float) -> Iterator[str]:
    """[*shape] that is the other in some slices of an axis, and in others not."""
    for axis in range(mine.ndim):
        others = tuple(each for each in range(mine.ndim) if each != axis)
        off = np.sqrt(np.square(mine - theirs).mean(others)) > 4 * limit
        if 0 < off.sum() <= off.size // 2:
            places = ", ".join(map(str, np.flatnonzero(off)[:4]))
            more = f" and {int(off.sum()) - 4} more" if off.sum() > 4 else ""
            yield f"{{}} but for {places}{more} of the {off.size} along its axis {axis}"


WHOLE: tuple[Test, ...] = (_number, _by_feature, _elsewhere, _rounded)
"""What a value is of all of another."""
