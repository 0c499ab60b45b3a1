"""Scores and context (E-5), and their wrong forms."""

from collections.abc import Callable
from typing import Any

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forms_of, forward_only, in_float32_of, in_narrower, narrowed
from encoder_conformance.oracle.forms.needs import (
    CAPPED,
    INEXACT_ROOT,
    MANY_HEADS,
    NOT_BY_HEAD_DIM,
    ONE_SEQUENCE,
    OWN_WIDTH,
    ROTATED,
    SCALED,
    WIDE_HEADS,
    not_its_cap,
)
from encoder_conformance.oracle.forms.rotation import turned_values
from encoder_conformance.oracle.forms.softmax import MaskedSoftmax
from encoder_conformance.oracle.tape import ByOperands, Pullback, Step
from encoder_conformance.spec.axes import BHST, BHSd, BHTd, Reduced

Size = Callable[..., float]
"""(a query, the step's choices) → the number by whose root its scores are divided."""


def head_dim(query: BHSd, **choices: float) -> float:
    return float(query.shape[-1])


def d_model(query: BHSd, **choices: float) -> float:
    return float(query.shape[1] * query.shape[-1])


def stated(query: BHSd, *, divisor: float, **choices: float) -> float:
    """A number that the layer names (E-32)."""
    return divisor


def share(query: BHSd, *, width: int, **choices: float) -> float:
    """The features that a head would have of d_model, where it has a number of its own (E-20)."""
    return float(width / query.shape[1])


def _right_scores(size: Size) -> Step:
    """query · keyᵀ / √size, before any mask: by d (E-5; Vaswani et al., 2017, eq. 1), or by D = H·d (E-13)."""

    def scores(a: Arithmetic, query: BHSd, key: BHTd, **choices: float) -> tuple[BHST, Pullback]:
        return _over(a, a.sqrt(a.exact(size(query, **choices))), query, key)

    return scores


def scores_by_number(
    a: Arithmetic, query: BHSd, key: BHTd, *, divisor: float, **choices: float
) -> tuple[BHST, Pullback]:
    """query · keyᵀ / √n, n a number that the layer names (E-32)."""
    return _over(a, a.sqrt(a.constant(divisor)), query, key)


def _over(a: Arithmetic, root: Reduced, query: BHSd, key: BHTd) -> tuple[BHST, Pullback]:
    def pullback(g: BHST) -> ByOperands:
        scaled = a.divide(g, root)
        return a.matmul(scaled, key), a.matmul(scaled.swapaxes(-1, -2), query)

    return a.divide(a.matmul(query, key.swapaxes(-1, -2)), root), pullback


attention_scores, scores_by_d_model = _right_scores(head_dim), _right_scores(d_model)


def attend(a: Arithmetic, scores: BHST, value: BHTd, softmax: MaskedSoftmax, **rotation: Any) -> tuple[BHSd, Pullback]:
    """softmax(scores) · value (E-5).

    The pullback is that of fused attention: it makes the weights again from their logarithm's sum, and takes the
    softmax's inner product over the features of the context (Dao et al., 2022, arXiv 2205.14135, algorithm 4). It is
    the noisier of the usual orders, so that its condition holds for all of them.
    """
    context = a.matmul(softmax.weights, value)

    def pullback(g: BHSd) -> ByOperands:
        weights = a.exp(a.subtract(softmax.kept, softmax.log_sum))
        inner = a.sum(a.multiply(g, context), -1)
        by_weights = a.matmul(g, value.swapaxes(-1, -2))
        by_scores = a.multiply(weights, a.subtract(by_weights, inner))
        if softmax.mask is not None:  # no gradient goes to a score that was replaced
            by_scores = np.where(softmax.mask, by_scores, 0.0)
        if softmax.largest != "detached":
            by_scores = by_scores + _through_largest(scores if softmax.largest == "all" else softmax.kept, by_scores)
        return by_scores, a.matmul(weights.swapaxes(-1, -2), g)

    return context, pullback


def _through_largest(scores: BHST, by_scores: BHST) -> BHST:
    """The gradient through the maximum of exp(s − max): less the sum over the keys, to the largest of the scores.

    The weights do not change with the maximum, and so that sum is 0 but for rounding (rule C-6).
    """
    by_largest = np.zeros_like(by_scores)
    at = scores.argmax(axis=-1)[..., None]
    np.put_along_axis(by_largest, at, -by_scores.sum(axis=-1, keepdims=True), axis=-1)
    return by_largest


def _scale_in_float32(size: Size) -> Step:
    """query · keyᵀ times 1/√size as float32 holds it."""

    def scores(a: Arithmetic, query: BHSd, key: BHTd, **choices: float) -> BHST:
        scale = a.exact(float(np.float32(1.0 / np.sqrt(size(query, **choices)))))
        return a.multiply(a.matmul(query, key.swapaxes(-1, -2)), scale)

    return forward_only(scores)


def _divided_by(divisor: Size) -> Step:
    def scores(a: Arithmetic, query: BHSd, key: BHTd, **choices: float) -> BHST:
        return a.divide(a.matmul(query, key.swapaxes(-1, -2)), a.exact(float(divisor(query, **choices))))

    return forward_only(scores)


def _key_by_reshape(size: Size) -> Step:
    """The key read as [B, H, d, S] with no transpose."""

    def scores(a: Arithmetic, query: BHSd, key: BHTd, **choices: float) -> BHST:
        batch, heads, sequence, head_dim = key.shape
        turned = key.reshape(batch, heads, head_dim, sequence)
        return a.divide(a.matmul(query, turned), a.sqrt(a.exact(size(query, **choices))))

    return forward_only(scores)


def _wrong_scores(right: Step, size: Size) -> dict[str, Step]:
    """The wrong forms of scores that are to be divided by the root of `size`."""
    return {
        "scale-in-float32": _scale_in_float32(size),
        "not-scaled": _divided_by(lambda query, **choices: 1.0),
        "scaled-twice": _divided_by(size),
        "multiplied": _divided_by(lambda query, **choices: 1 / np.sqrt(size(query, **choices))),
        "by-share-of-width": _right_scores(share),
        "key-by-reshape": _key_by_reshape(size),
        **in_narrower(right),
    }


def _context_in(dtype: str) -> Step:
    def narrow(a: Arithmetic, scores: BHST, value: BHTd, softmax: MaskedSoftmax, **rotation: Any) -> BHSd:
        return np.asarray(narrowed(softmax.weights, dtype) @ narrowed(value, dtype))

    return forward_only(narrow)


def _context_in_float32(a: Arithmetic, scores: BHST, value: BHTd, softmax: MaskedSoftmax, **rotation: Any) -> BHSd:
    context = a.float32.matmul(in_float32_of(a, softmax.weights), in_float32_of(a, value))
    return context.astype(value.dtype)


_SCORES: dict[str, Step] = {
    "standard": attention_scores,
    "by-d-model": scores_by_d_model,
    "by-head-dim": attention_scores,  # the choice of most layers; wrong where one chooses d_model
    **_wrong_scores(attention_scores, head_dim),
    **forms_of("by-d-model", {**_wrong_scores(scores_by_d_model, d_model), "by-head-dim": attention_scores}),
    "by-number": scores_by_number,
    **forms_of("by-number", {**_wrong_scores(scores_by_number, stated), "by-head-dim": attention_scores}),
}


def attention_bias(a: Arithmetic, scores: BHST, *, bias: BHST, **cap: float) -> tuple[BHST, Pullback]:
    """scores + bias (M-7)."""
    return a.add(scores, a.exact(bias)), lambda by: (by,)


def _biased(times: float) -> Step:
    """The bias multiplied by a number, before it is added."""
    return forward_only(lambda a, scores, *, bias, **cap: a.add(scores, a.exact(bias * times)))


def _under_cap(a: Arithmetic, scores: BHST, *, bias: BHST, cap: float) -> BHST:
    """The bias added before the cap: c · tanh((score + bias) / c), of scores that are capped without it."""
    most = a.constant(cap)
    tangent = a.divide(scores, most)
    half, one = a.exact(0.5), a.exact(1.0)
    uncapped = a.multiply(most, half * a.subtract(a.log(a.add(one, tangent)), a.log(a.subtract(one, tangent))))
    return softcap(a, a.add(uncapped, a.exact(bias)), cap=cap)[0]


_BIAS: dict[str, Step] = {
    "standard": attention_bias,
    "missing": _biased(0.0),
    "subtracted": _biased(-1.0),
    "added-twice": _biased(2.0),
    "of-head-0": forward_only(lambda a, scores, *, bias, **cap: a.add(scores, a.exact(bias[:, :1]))),
    # The bias taken for a mask, true where it is not 0: there the score becomes minus infinity.
    "as-mask": forward_only(lambda a, scores, *, bias, **cap: np.where(bias == 0.0, scores, -np.inf)),
    "under-cap": forward_only(_under_cap),
}


def _of_turned_values(a: Arithmetic, scores: BHST, value: BHTd, softmax: MaskedSoftmax, **rotation: Any) -> BHSd:
    """Values turned by their positions, as keys are."""
    return a.matmul(softmax.weights, turned_values(a, value, **rotation))


def _scaled_behind(size: Callable[[BHST, BHTd], int]) -> Step:
    """The weights, which sum to 1, divided by √size."""

    def attend(a: Arithmetic, scores: BHST, value: BHTd, softmax: MaskedSoftmax, **rotation: Any) -> BHSd:
        return a.divide(a.matmul(softmax.weights, value), a.sqrt(a.exact(float(size(scores, value)))))

    return forward_only(attend)


_ATTEND: dict[str, Step] = {
    "standard": attend,
    # Each position keeps its own value.
    "identity": forward_only(lambda a, scores, value, softmax, **rotation: value[:, :, : scores.shape[2]]),
    **{f"in-{dtype}": _context_in(dtype) for dtype in ("bfloat16", "float16", "tf32")},
    "in-float32": forward_only(_context_in_float32),
    "of-turned-values": forward_only(_of_turned_values),
    "scaled-behind": _scaled_behind(lambda scores, value: value.shape[-1]),
    "scaled-behind-by-d-model": _scaled_behind(lambda scores, value: scores.shape[1] * value.shape[-1]),
}


def softcap(a: Arithmetic, scores: BHST, *, cap: float, **choices: float) -> tuple[BHST, Pullback]:
    """c · tanh(score / c) (E-30; Gemma Team, 2024, arXiv 2408.00118)."""
    most = a.constant(cap)
    tangent = a.tanh(a.divide(scores, most))

    def pullback(g: BHST) -> ByOperands:
        return (a.multiply(g, a.subtract(a.exact(1.0), a.multiply(tangent, tangent))),)

    return a.multiply(most, tangent), pullback


def _not_capped(a: Arithmetic, scores: BHST, **choices: float) -> BHST:
    return scores


def _clipped(a: Arithmetic, scores: BHST, *, cap: float, **choices: float) -> BHST:
    """The score clipped to [−c, c]."""
    return np.clip(scores, -cap, cap)


def _before_scale(a: Arithmetic, scores: BHST, *, cap: float, divisor: float) -> BHST:
    """The product of query and key capped, and then divided: scores are beyond the cap sooner."""
    root = a.sqrt(a.constant(divisor))
    return a.divide(softcap(a, a.multiply(scores, root), cap=cap)[0], root)


def _not_multiplied(a: Arithmetic, scores: BHST, *, cap: float, **choices: float) -> BHST:
    """tanh(score / c)."""
    return a.tanh(a.divide(scores, a.constant(cap)))


def _not_divided(a: Arithmetic, scores: BHST, *, cap: float, **choices: float) -> BHST:
    """c · tanh(score)."""
    return a.multiply(a.constant(cap), a.tanh(scores))


def _capped_at_50(a: Arithmetic, scores: BHST, **choices: float) -> BHST:
    """Gemma 2's own cap for the layer's."""
    return softcap(a, scores, cap=50.0)[0]


_CAPS: dict[str, Callable[..., BHST]] = {
    "missing": _not_capped,
    "clipped": _clipped,
    "before-scale": _before_scale,
    "not-multiplied": _not_multiplied,
    "not-divided": _not_divided,
    "at-50": _capped_at_50,
}
SOFTCAP = Form(
    {"standard": softcap, **{name: forward_only(form) for name, form in _CAPS.items()}},
    {"standard": "{cap!r} * tanh({0} / {cap!r})"},
    keeps="what it makes",
    needs={"at-50": (not_its_cap(50.0),), "before-scale": (SCALED,)},
)
SCORES = Form(
    _SCORES,
    {
        "standard": "{0} @ transpose({1}) / sqrt(head_dim)",
        "by-d-model": "{0} @ transpose({1}) / sqrt(d_model)",
        "by-number": "{0} @ transpose({1}) / sqrt({divisor!r})",
    },
    keeps="what it reads",
    needs={
        **dict.fromkeys(("not-scaled", "scaled-twice", "multiplied"), (SCALED,)),
        "scale-in-float32": (INEXACT_ROOT,),
        "by-d-model": (MANY_HEADS,),
        "by-head-dim": (MANY_HEADS, NOT_BY_HEAD_DIM),
        "by-share-of-width": (OWN_WIDTH,),
        "key-by-reshape": (WIDE_HEADS,),
    },
    is_choice={"by-d-model": "by-d-model", "by-head-dim": "standard"},
)
BIAS = Form(
    _BIAS,
    {"standard": "{0} + {bias}"},
    makes_no_tensor=True,
    needs={"of-head-0": (MANY_HEADS,), "under-cap": (CAPPED,)},
)
ATTEND = Form(
    _ATTEND,
    {"standard": "{weights} @ {1}"},
    keeps="what it reads",
    needs={
        "identity": (ONE_SEQUENCE,),
        "of-turned-values": (ROTATED,),
        "scaled-behind": (WIDE_HEADS,),
        "scaled-behind-by-d-model": (MANY_HEADS,),
    },
)
