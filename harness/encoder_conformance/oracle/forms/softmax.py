"""The masked softmax (E-5, M-1, M-4, M-6), and its wrong forms.

`mask` is None or bool, broadcastable to the scores [B, H, S, T].
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import in_float32_of, left_on, narrowed
from encoder_conformance.oracle.forms.needs import (
    APPENDED,
    CAPPED,
    EMPTY_ROW,
    MASK,
    ROW_SPECIFIED,
    UNEVEN_WINDOW,
    WINDOW,
    not_its_fill,
    not_its_row,
)
from encoder_conformance.spec.axes import BHST
from encoder_conformance.spec.case import joined, within

Largest = Literal["detached", "shown", "all"]
"""Through which maximum a gradient goes (rule C-6): through none, that of the scores that the mask shows, or that of
all, which was taken off before the mask was applied."""


@dataclass(frozen=True)
class MaskedSoftmax:
    """The weights, the scores that the mask left, and the logarithm of their exponentials' sum [B, H, S, 1].

    `mask` is true where a score was left as it was, and so where its gradient goes. `largest`: which maximum
    a gradient goes through too.
    """

    weights: BHST
    kept: BHST
    log_sum: BHST
    mask: Any
    largest: Largest = "detached"


def masked_softmax(
    a: Arithmetic, scores: BHST, mask: Any, fill: float = -np.inf, empty_row: str = "unspecified", dropout: float = 0.0
) -> MaskedSoftmax:
    """Softmax over the keys, with `fill` in place of the scores that the mask excludes (E-5, M-1, M-6).

    `empty_row` is what a row of −∞ gives (M-4): "zero", "uniform" or "nan"; zero where nobody says, which keeps it from
    disturbing anything else. `dropout` is the layer's rate: nothing is dropped outside training, but by a wrong form.
    """
    kept = _kept(scores, mask, fill)
    empty = np.isneginf(kept.max(axis=-1, keepdims=True))
    if mask is not None:
        empty = empty | ~np.any(mask, axis=-1, keepdims=True)
    if empty_row == "uniform":  # whatever the score is that fills the row
        kept = np.where(empty, 0.0, kept)
    largest = kept.max(axis=-1, keepdims=True)
    if empty_row != "nan":
        largest = np.where(empty, 0.0, largest)
    with np.errstate(invalid="ignore"):  # −∞ − −∞ is the NaN that is asked for
        exponentials = a.exp(a.subtract(kept, largest))
    total = a.sum(exponentials, -1)
    total = np.where(total == 0.0, 1.0, total)
    return MaskedSoftmax(a.divide(exponentials, total), kept, a.add(largest, a.log(total)), mask)


def _kept(scores: BHST, mask: Any, fill: float = -np.inf) -> BHST:
    return scores if mask is None else np.where(mask, scores, fill)


def _plain(a: Arithmetic, kept: BHST, axis: int = -1) -> BHST:
    """Softmax over an axis, as it is: a row of minus infinity gives NaN."""
    exponentials = a.exp(a.subtract(kept, kept.max(axis=axis, keepdims=True)))
    return a.divide(exponentials, a.sum(exponentials, axis))


def _wrong(compute: Callable[[Arithmetic, BHST, Any], BHST]) -> Callable[..., MaskedSoftmax]:
    """A form that takes none of the layer's choices."""
    return _as_asked(lambda a, scores, mask, **right: compute(a, scores, mask))


def _as_asked(compute: Callable[..., BHST]) -> Callable[..., MaskedSoftmax]:
    """A form that gives a query with no key what is right, and goes wrong elsewhere."""

    def softmax(a: Arithmetic, scores: BHST, mask: Any, **right: Any) -> MaskedSoftmax:
        with np.errstate(invalid="ignore", divide="ignore"):
            return MaskedSoftmax(compute(a, scores, mask, **right), scores, scores, mask)

    return softmax


FILLED_WITH = {
    "filled-minus-10": -10.0,
    "filled-minus-1e4": -1e4,
    "filled-minus-1e9": -1e9,
    "filled-minus-1e20": -1e20,
    "filled-lowest": float(np.finfo(np.float32).min),
}
"""Form → what it puts in place of a masked score."""
ZEROED = "filled-minus-1e9-zeroed"


def _filled(value: float, *, zeroed: bool = False) -> Callable[..., MaskedSoftmax]:
    """`zeroed`: whether what it hides is given a weight of zero behind the softmax, of which the others stay less."""

    def filled(a: Arithmetic, scores: BHST, mask: Any) -> BHST:
        weights = _plain(a, _kept(scores, mask, value))
        return np.asarray(np.where(mask, weights, 0.0)) if zeroed and mask is not None else weights

    return _wrong(filled)


ADDED = {
    "added-minus-10": -10.0,
    "added-minus-1e4": -1e4,
    "added-minus-1e9": -1e9,
    "added-minus-1e10": -1e10,
    "added-minus-1e12": -1e12,
}
"""Form → what it adds to a masked score."""
STORED = frozenset({*ADDED, "masked-after-renormalised"})
"""The forms of which the format of an implementation changes what comes of them, by more than its rounding."""


def _added(value: float) -> Callable[..., MaskedSoftmax]:
    def added(a: Arithmetic, scores: BHST, mask: Any) -> BHST:
        return _plain(a, scores if mask is None else a.as_stored(a.add(scores, np.where(mask, 0.0, value))))

    return _wrong(added)


def _after(a: Arithmetic, scores: BHST, mask: Any) -> BHST:
    return _plain(a, scores) if mask is None else _plain(a, scores) * mask


def _after_renormalised(a: Arithmetic, scores: BHST, mask: Any) -> BHST:
    weights = a.as_stored(_after(a, scores, mask))  # those that underflow are no part of the sum
    return a.divide(weights, a.sum(weights, -1))


def _over(axis: int) -> Callable[..., MaskedSoftmax]:
    def over(a: Arithmetic, scores: BHST, mask: Any) -> BHST:
        weights = _plain(a, _kept(scores, mask), axis)
        return np.asarray(np.where(np.isnan(weights), 0.0, weights))

    return _wrong(over)


def _flushed(x: BHST) -> BHST:
    return np.where(x < np.finfo(x.dtype).tiny, x.dtype.type(0), x)


def _without_largest(*, flushed: bool) -> Callable[..., MaskedSoftmax]:
    """exp(s) / Σ exp(s) in float32, which overflows where the largest score is not taken off first; in float64 of an
    implementation that stores scores so.

    `flushed`: exp(s) · (1 / Σ), and what is below float32's smallest normal number becomes 0, as XLA has it on a CPU. A
    row whose scores are all below −87 is NaN then, and one with a score above 87 is 0, where gradual underflow and
    a division give the right weights.
    """

    def softmax(a: Arithmetic, scores: BHST, mask: Any) -> BHST:
        kept = _kept(scores, mask).astype(np.float64 if a.stored_in == np.float64 else np.float32)
        with np.errstate(over="ignore"):
            exponentials = np.exp(kept)
        if flushed:
            exponentials = _flushed(exponentials)
            weights = exponentials * _flushed(1 / exponentials.sum(-1, keepdims=True))
        else:
            weights = exponentials / exponentials.sum(-1, keepdims=True)
        return np.asarray(weights.astype(scores.dtype))

    return _wrong(softmax)


WITHOUT_LARGEST = frozenset({"without-largest", "without-largest-flushed"})
"""The forms that overflow."""


def _plus_one(a: Arithmetic, scores: BHST, mask: Any) -> BHST:
    """exp(s) / (1 + Σ exp(s)): softmax_one, with a sink."""
    kept = _kept(scores, mask)
    largest = np.maximum(kept.max(axis=-1, keepdims=True), 0.0)
    exponentials = a.exp(a.subtract(kept, largest))
    return a.divide(exponentials, a.add(a.sum(exponentials, -1), a.exp(-largest)))


def _all_excluded(scores: BHST, mask: Any) -> BHST:
    return np.asarray(np.isneginf(_kept(scores, mask)).all(-1, keepdims=True))


def _in(dtype: str) -> Callable[..., MaskedSoftmax]:
    def narrow(a: Arithmetic, scores: BHST, mask: Any, **right: Any) -> BHST:
        rounded = narrowed(scores, dtype)
        weights = narrowed(masked_softmax(a, rounded, mask, **right).weights, dtype)
        # Scores that all overflow to −∞ are no row without a key, which the layer has an answer for: −∞ − −∞ is NaN.
        lost = _all_excluded(rounded, mask) & ~_all_excluded(scores, mask)
        return np.asarray(np.where(lost, np.nan, weights))

    return _as_asked(narrow)


def _in_float32(a: Arithmetic, scores: BHST, mask: Any, **right: Any) -> BHST:
    return masked_softmax(a.float32, in_float32_of(a, scores), mask, **right).weights.astype(scores.dtype)


def _dropped(*, broadcast: bool) -> Callable[..., MaskedSoftmax]:
    """Dropout left on: each weight is zeroed where the portable generator says so, the others scaled.

    `broadcast`: the same weights in every item and head.
    """

    def softmax(a: Arithmetic, scores: BHST, mask: Any, *, dropout: float = 0.0, **right: Any) -> BHST:
        weights = masked_softmax(a, scores, mask, **right).weights
        shape = (1, 1, *weights.shape[2:]) if broadcast else weights.shape
        return left_on(a, weights, "attention_weights", shape, dropout)

    return _as_asked(softmax)


def _empty_row(gives: str) -> Callable[..., MaskedSoftmax]:
    """The right form but for a query with no key, which gets the row of another layer."""

    return lambda a, scores, mask, **right: masked_softmax(a, scores, mask, -np.inf, gives)


EMPTY_ROWS = {f"empty-row-{row}": row for row in ("zero", "uniform", "nan")}
"""Form → what it gives a query with no key; every other query it gives what is right."""

_OF_MASK: dict[str, Callable[..., MaskedSoftmax]] = {
    "standard": masked_softmax,
    **{form: _empty_row(row) for form, row in EMPTY_ROWS.items()},
    **{form: _filled(value) for form, value in FILLED_WITH.items()},
    ZEROED: _filled(-1e9, zeroed=True),
    **{form: _added(value) for form, value in ADDED.items()},
    "multiplied": _wrong(lambda a, scores, mask: _plain(a, scores if mask is None else scores * mask)),
    "masked-after": _wrong(_after),
    "masked-after-renormalised": _wrong(_after_renormalised),
    "over-queries": _over(-2),
    "over-heads": _over(1),
    "without-largest": _without_largest(flushed=False),
    "without-largest-flushed": _without_largest(flushed=True),
    "plus-one": _wrong(_plus_one),
    "dropout": _dropped(broadcast=False),
    "dropout-broadcast": _dropped(broadcast=True),
    "in-bfloat16": _in("bfloat16"),
    "in-float16": _in("float16"),
    "in-float32": _as_asked(_in_float32),
}


def _over_cap(a: Arithmetic, scores: BHST, mask: Any, *, cap: float, **right: Any) -> MaskedSoftmax:
    """Masked scores capped, as all others are: −∞ becomes −c, and the key that it hides has a weight."""
    return _wrong(lambda a, scores, mask: _plain(a, _kept(scores, mask, -cap)))(a, scores, mask)


def _weights_capped(a: Arithmetic, scores: BHST, mask: Any, *, cap: float, **right: Any) -> MaskedSoftmax:
    """c · tanh(weight / c)."""
    most, plain = a.constant(cap), masked_softmax(a, scores, mask, **right)
    return replace(plain, weights=a.multiply(most, a.tanh(a.divide(plain.weights, most))))


Limits = tuple[int, int]
"""Of a window: the keys before a query, and those after it."""
Seen = Callable[[Any, Limits, int, int], Any]
"""(mask, window, queries, keys) → the mask of what a query attends to."""


def _in_window(mask: Any, window: Limits, S: int, T: int) -> Any:
    return joined(mask, within(window, S, T))


def _of_other_window(other: Callable[[Limits], Limits]) -> Seen:
    return lambda mask, window, S, T: _in_window(mask, other(window), S, T)


def _of_blocks(mask: Any, window: Limits, S: int, T: int) -> Any:
    """The keys of a query's own block: the sequence is cut into blocks of the window's size."""
    size = sum(window) + 1
    return joined(mask, (np.arange(T)[None] // size == np.arange(S)[:, None] // size)[None, None])


def _beside_no_mask(mask: Any, window: Limits, S: int, T: int) -> Any:
    """The window where no mask is given; a mask takes its place."""
    return within(window, S, T) if mask is None else mask


def _or_mask(mask: Any, window: Limits, S: int, T: int) -> Any:
    """The keys that the window or the mask leaves."""
    return within(window, S, T) if mask is None else mask | within(window, S, T)


def _windowed(form: Callable[..., MaskedSoftmax], seen: Seen = _in_window) -> Callable[..., MaskedSoftmax]:
    """The form over the keys that both mask and window leave (E-26)."""

    def softmax(
        a: Arithmetic, scores: BHST, mask: Any, *, window: Limits | None = None, cap: float | None = None, **right: Any
    ) -> MaskedSoftmax:
        attended = mask if window is None else seen(mask, window, *scores.shape[-2:])
        return form(a, scores, attended, **right, **({"cap": cap} if form in _OF_CAP.values() else {}))

    return softmax


_OF_CAP: dict[str, Callable[..., MaskedSoftmax]] = {"cap-over-mask": _over_cap, "weights-capped": _weights_capped}
_WINDOWS: dict[str, Seen] = {
    "window-missing": lambda mask, window, S, T: mask,
    "window-one-wider": _of_other_window(lambda window: (window[0] + 1, window[1] + 1)),
    "window-one-narrower": _of_other_window(lambda window: (max(window[0] - 1, 0), max(window[1] - 1, 0))),
    "window-without-its-end": _of_other_window(lambda window: (window[0], max(window[1] - 1, 0))),
    "window-halved": _of_other_window(lambda window: (window[0] // 2, window[1] // 2)),
    "window-doubled": _of_other_window(lambda window: (2 * window[0], 2 * window[1])),
    "window-turned-about": _of_other_window(lambda window: (window[1], window[0])),
    "window-of-one-side": _of_other_window(lambda window: (window[0], window[0])),
    "window-of-blocks": _of_blocks,
    "window-beside-no-mask": _beside_no_mask,
    "window-or-mask": _or_mask,
}


def _without_appended(*, masked: bool) -> Callable[..., MaskedSoftmax]:
    """The keys of positions alone (E-44); `masked`: only where a mask is given."""

    def softmax(a: Arithmetic, scores: BHST, mask: Any, **right: Any) -> MaskedSoftmax:
        of_position = np.arange(scores.shape[-1]) < scores.shape[-1] - 1
        if mask is None:
            return masked_softmax(a, scores, None if masked else of_position[None, None, None], **right)
        return masked_softmax(a, scores, mask & of_position, **right)

    return softmax


_OF_APPENDED = {
    "appended-missing": _without_appended(masked=False),
    "appended-hidden": _without_appended(masked=True),
}
_SOFTMAX = {
    **{name: _windowed(form) for name, form in (_OF_MASK | _OF_CAP | _OF_APPENDED).items()},
    **{name: _windowed(masked_softmax, seen) for name, seen in _WINDOWS.items()},
}

SOFTMAX = Form(
    _SOFTMAX,
    {"standard": "softmax({0}, mask[ & within{window}])"},
    keeps="what it makes",
    needs={
        **{form: (MASK, not_its_fill(value)) for form, value in FILLED_WITH.items()},
        **dict.fromkeys((*ADDED, ZEROED, "multiplied", "masked-after", "masked-after-renormalised"), (MASK,)),
        **{form: (EMPTY_ROW, not_its_row(row)) for form, row in EMPTY_ROWS.items()},
        "empty-row-zero": (EMPTY_ROW, not_its_row("zero"), ROW_SPECIFIED),
        "cap-over-mask": (CAPPED, MASK),
        "weights-capped": (CAPPED,),
        "appended-missing": (APPENDED,),
        "appended-hidden": (APPENDED, MASK),
        **dict.fromkeys(_WINDOWS, (WINDOW,)),
        **dict.fromkeys(("window-turned-about", "window-of-one-side"), (WINDOW, UNEVEN_WINDOW)),
        **dict.fromkeys(("window-beside-no-mask", "window-or-mask"), (WINDOW, MASK)),
    },
)
