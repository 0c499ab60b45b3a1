"""Recognises by its values what stands between the scores and attention's weights: a scale, numbers that are added, a
cap, and a softmax."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from encoder_conformance.readers.onnx_file.tracing.expressions import Expression, UnsupportedPattern
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.spec.axes import Array, Elementwise

CLOSE = 1e-5
_FAR = 1e8
"""A score at which any cap is reached."""
_SEEN, _HIDDEN = 1e-3, 100.0
"""What is added to a score: less than the one is rounding, more than the other hides a key (M-6)."""
_SMALLER = (1e-3, 1e-6, 1e-9)
"""Times the scores that are asked first."""


@dataclass(frozen=True)
class SoftmaxForm:
    """softmax(cap · tanh((scale · scores + constant) / cap)), or softmax(scale · scores + constant) without a cap.

    A `cap` of 0 is none. `constant` [B, H, Q, K] is −∞ where the file hides a key, and None for nothing. Without a cap
    the largest of each row is 0; with one it is what is added.
    """

    scale: float
    constant: Array | None = None
    cap: float = 0.0


def softmax_of(of: Callable[[Array], Array], expression: Expression) -> SoftmaxForm:
    """Raises UnsupportedPattern. `of` maps scores [B, H, Q, K] to the value that `expression` is."""
    shape, axis = expression.operation.shape, expression.axis
    scores = np.random.default_rng(0).normal(size=shape)

    def logs(values: Array) -> Array:
        """The logarithms of the weights [B, H, Q, K] of scores [B, H, Q, K]."""
        found = np.full(int(np.prod(shape)), np.nan)
        found[expression.index.reshape(-1)] = of(values).reshape(-1)
        return np.asarray(np.log(found.reshape(shape)))

    with np.errstate(all="ignore"):
        at_zero, observed = logs(np.zeros(shape)), logs(scores)
        open_ = np.isfinite(observed - at_zero)
        if not open_.any():
            raise UnsupportedPattern("attention's weights are all 0 or no numbers, with masks that hide nothing")
        if np.abs(observed - at_zero)[open_].max() < CLOSE:
            raise UnsupportedPattern("the scores change no weight, as where a mask hides every key", "own_mask")
        _refuse_scaled_heads(observed, axis)
        # A high cap is seen of large scores alone, so that it is asked for first.
        found = _capped(logs, scores, at_zero, observed, axis) or _steep(logs, scores, at_zero, observed, axis)
        found = found or _linear(scores, at_zero, observed, open_, axis)
    if found is None:
        with np.errstate(all="ignore"):
            blind = np.broadcast_to((np.abs(observed - at_zero) < CLOSE).all(axis, keepdims=True), shape)
            others = _linear(scores, at_zero, np.where(blind, np.nan, observed), open_ & ~blind, axis)
        if blind.any() and others is not None:
            raise UnsupportedPattern("to some queries all keys are alike, as where a mask hides every one", "own_mask")
        feature = _no_softmax(scores, at_zero, observed, open_, axis)
        raise UnsupportedPattern("the scores go through something else over each row", feature)
    return found


def _no_softmax(scores: Array, at_zero: Array, observed: Array, open_: Array, axis: int) -> Feature:
    """What it is in the place of a softmax, of scores and logarithms of weights [B, H, Q, K]."""
    heads = [slice(head, head + 1) for head in range(scores.shape[1])]
    if all(_linear(scores[:, h], at_zero[:, h], observed[:, h], open_[:, h], axis) for h in heads):
        return "head_scales"
    with np.errstate(all="ignore"):
        at_zeros, sums = (np.exp(values).sum(axis, keepdims=True) for values in (at_zero, observed))
        divided = _linear(scores, at_zero - np.log(at_zeros), observed - np.log(sums), open_, axis)
    # With a term more in the sum, as of a sink, they sum up to less than 1.
    return "late_division" if divided is not None and sums.min() > 1 else "no_softmax"


def _refuse_scaled_heads(observed: Array, axis: int) -> None:
    """Raises UnsupportedPattern where the weights of a head, of these logarithms [B, H, Q, K], sum up to another number
    than 1, the same for each query."""
    sums = np.exp(observed).sum(axis)
    first = sums[:1, :, :1]
    told = [f"{head} {total:.3g}" for head, total in enumerate(first.reshape(-1)) if not abs(total - 1) < CLOSE]
    if told and np.abs(sums - first).max() < CLOSE:
        same = np.ptp(first) < CLOSE
        whose = f"every head {first.flat[0]:.3g}" if same else f"head {', of head '.join(told)}"
        raise UnsupportedPattern(f"those of {whose} in sum", "weights_scaled")


def _linear(scores: Array, at_zero: Array, observed: Array, open_: Array, axis: int) -> SoftmaxForm | None:
    """Without a cap, of scores and logarithms of weights [B, H, Q, K]; `open_` is true where a key is not hidden."""
    counts = open_.sum(axis=axis, keepdims=True)
    moved, centred = (
        np.where(open_, values - np.where(open_, values, 0).sum(axis, keepdims=True) / counts, 0)
        for values in (observed - at_zero, scores)
    )
    scale = float((moved * centred).sum() / (centred * centred).sum())
    if not _error(scale * scores + at_zero - np.nanmax(np.where(open_, at_zero, np.nan)), observed, axis) < CLOSE:
        return None
    even = np.log(1 / scores.shape[axis])
    is_plain = np.abs(at_zero - even).max() < CLOSE
    return SoftmaxForm(scale, None if is_plain else at_zero - at_zero.max(axis=axis, keepdims=True))


def _steep(
    logs: Callable[[Array], Array], scores: Array, at_zero: Array, observed: Array, axis: int
) -> SoftmaxForm | None:
    """Without a cap, of a scale at which these scores [B, H, Q, K] leave of some keys nothing, by the logarithms of the
    weights: smaller scores tell it, and it has to hold of these, too."""
    lost = np.isfinite(at_zero) & ~np.isfinite(observed)
    for smaller in _SMALLER if lost.any() else ():
        seen = logs(scores * smaller)
        if not np.isfinite(seen[lost]).all():
            continue
        open_ = np.isfinite(seen - at_zero)
        found = _linear(scores * smaller, at_zero, seen, open_, axis)
        due = found.scale * scores + at_zero if found else at_zero
        return found if found and _error(due, observed, axis) < CLOSE else None
    return None


def _capped(
    logs: Callable[[Array], Array], scores: Array, at_zero: Array, observed: Array, axis: int
) -> SoftmaxForm | None:
    """With a cap, of scores and logarithms of weights [B, H, Q, K]. Of every row one key keeps a score of 0. Raised and
    lowered beyond the cap, the others show where that is."""
    kept = np.zeros(scores.shape, np.bool_)
    np.put_along_axis(kept, at_zero.argmax(axis, keepdims=True), True, axis)
    others = np.isfinite(at_zero) & ~kept

    def over_kept(values: Elementwise) -> Elementwise:
        """How much larger each logarithm is than that of its row's kept key."""
        found = logs(np.where(kept, 0.0, values))
        return np.asarray(found - np.where(kept, found, 0).sum(axis, keepdims=True))

    top, bottom = over_kept(np.full(scores.shape, _FAR)), over_kept(np.full(scores.shape, -_FAR))
    if not others.any() or not np.isfinite((top - bottom)[others]).all():
        return None
    caps, of_kept = (top - bottom)[others] / 2, np.where(others, -(top + bottom) / 2, 0)
    cap = float(caps.mean())
    row = of_kept.sum(axis, keepdims=True) / np.maximum(others.sum(axis, keepdims=True), 1)
    if cap <= 0 or np.abs(caps - cap).max() > CLOSE * cap or np.abs(of_kept - row)[others].max() > 10 * CLOSE * cap:
        return None

    def before_cap(values: Elementwise) -> Elementwise:
        return np.asarray(cap * np.arctanh(np.clip(values / cap, -1, 1)))

    added = before_cap(np.where(kept, row, over_kept(np.zeros(scores.shape)) + row))
    small = scores / max(1.0, np.abs(scores).max() / cap)
    moved = (before_cap(over_kept(small) + row) - added)[others]
    scale = float(np.vdot(moved, small[others]) / np.vdot(small[others], small[others]))
    due = np.where(np.isfinite(at_zero), cap * np.tanh((scale * scores + added) / cap), -np.inf)
    if not _error(due, observed, axis) < 10 * CLOSE:
        return None
    constant = np.where(np.isfinite(at_zero), np.where(np.abs(added) < _SEEN, 0.0, added), -np.inf)
    return SoftmaxForm(scale, constant if constant.any() else None, float(f"{cap:.6g}"))


def _error(due: Array, observed: Array, axis: int) -> float:
    """The largest error of weights, of what the exponential is taken of, and the logarithms that are observed, all
    [B, H, Q, K]."""
    expected = np.exp(due - np.nanmax(np.where(np.isfinite(due), due, np.nan), axis=axis, keepdims=True))
    expected /= expected.sum(axis=axis, keepdims=True)
    return float(np.nanmax(np.abs(np.exp(observed) - expected)))


def biases_positions(constant: Elementwise) -> bool:
    """Whether it prefers some of the positions that it does not hide: relative positions, or ALiBi."""
    return bool(((np.abs(constant) > _SEEN) & (constant > -_HIDDEN)).any())


def hides(constant: Elementwise) -> Elementwise:
    """True where it hides a key."""
    return np.asarray(constant < -_HIDDEN)


def hides_some(constant: Array) -> bool:
    """Whether it hides keys from some queries alone, other than as a causal mask does. `constant` [B, H, Q, K].

    Keys that are hidden from every query are folded padding.
    """
    hidden = hides(constant)
    S = hidden.shape[-1]
    later = np.arange(S)[:, None] < np.arange(S)
    seen_by_some = ~hidden.all(-2, keepdims=True)
    return bool((hidden & seen_by_some).any()) and not (hidden | ~seen_by_some == later | ~seen_by_some).all()
