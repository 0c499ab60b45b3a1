"""Scores and context (E-5), and their wrong forms."""

from collections.abc import Callable

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.form import Form
from encoder_conformance.oracle.forms.forward_only import forms_of, forward_only, in_float32_of, in_narrower, narrowed
from encoder_conformance.oracle.forms.needs import INEXACT_ROOT, MANY_HEADS, ONE_SEQUENCE, SCALED, WIDE_HEADS
from encoder_conformance.oracle.forms.softmax import MaskedSoftmax
from encoder_conformance.oracle.tape import ByOperands, Pullback, Step
from encoder_conformance.spec.axes import BHST, BHSd, BHTd, Reduced

Size = Callable[[BHSd], int]
"""A query → the size by whose root its scores are divided."""


def head_dim(query: BHSd) -> int:
    return int(query.shape[-1])


def d_model(query: BHSd) -> int:
    return int(query.shape[1] * query.shape[-1])


def _right_scores(size: Size) -> Step:
    """query · keyᵀ / √size, before any mask: by d (E-5; Vaswani et al., 2017, eq. 1), or by D = H·d (E-13)."""

    def scores(a: Arithmetic, query: BHSd, key: BHTd) -> tuple[BHST, Pullback]:
        return _over(a, a.sqrt(a.exact(float(size(query)))), query, key)

    return scores


def scores_by_number(a: Arithmetic, query: BHSd, key: BHTd, *, divisor: float) -> tuple[BHST, Pullback]:
    """query · keyᵀ / √n, n a number that the layer names (E-32)."""
    return _over(a, a.sqrt(a.constant(divisor)), query, key)


def _over(a: Arithmetic, root: Reduced, query: BHSd, key: BHTd) -> tuple[BHST, Pullback]:
    def pullback(g: BHST) -> ByOperands:
        scaled = a.divide(g, root)
        return a.matmul(scaled, key), a.matmul(scaled.swapaxes(-1, -2), query)

    return a.divide(a.matmul(query, key.swapaxes(-1, -2)), root), pullback


attention_scores, scores_by_d_model = _right_scores(head_dim), _right_scores(d_model)


def attend(a: Arithmetic, scores: BHST, value: BHTd, softmax: MaskedSoftmax) -> tuple[BHSd, Pullback]:
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
        if softmax.through_largest:
            by_scores = by_scores + _through_largest(softmax.kept, by_scores)
        return by_scores, a.matmul(weights.swapaxes(-1, -2), g)

    return context, pullback


def _through_largest(kept: BHST, by_scores: BHST) -> BHST:
    """The gradient through the maximum of exp(s − max): less the sum over the keys, to the largest score.

    The weights do not change with the maximum, and so that sum is 0 but for rounding (rule C-6).
    """
    by_largest = np.zeros_like(by_scores)
    at = kept.argmax(axis=-1)[..., None]
    np.put_along_axis(by_largest, at, -by_scores.sum(axis=-1, keepdims=True), axis=-1)
    return by_largest


def _scale_in_float32(size: Size) -> Step:
    """query · keyᵀ times 1/√size as float32 holds it."""

    def scores(a: Arithmetic, query: BHSd, key: BHTd) -> BHST:
        scale = a.exact(float(np.float32(1.0 / np.sqrt(size(query)))))
        return a.multiply(a.matmul(query, key.swapaxes(-1, -2)), scale)

    return forward_only(scores)


def _divided_by(divisor: Callable[[BHSd], float]) -> Step:
    return forward_only(lambda a, query, key: a.divide(a.matmul(query, key.swapaxes(-1, -2)), a.exact(divisor(query))))


def _key_by_reshape(size: Size) -> Step:
    """The key read as [B, H, d, S] with no transpose."""

    def scores(a: Arithmetic, query: BHSd, key: BHTd) -> BHST:
        batch, heads, sequence, head_dim = key.shape
        turned = key.reshape(batch, heads, head_dim, sequence)
        return a.divide(a.matmul(query, turned), a.sqrt(a.exact(float(size(query)))))

    return forward_only(scores)


def _wrong_scores(right: Step, size: Size) -> dict[str, Step]:
    """The wrong forms of scores that are to be divided by the root of `size`."""
    return {
        "scale-in-float32": _scale_in_float32(size),
        "not-scaled": _divided_by(lambda query: 1.0),
        "scaled-twice": _divided_by(lambda query: float(size(query))),
        "multiplied": _divided_by(lambda query: float(1 / np.sqrt(size(query)))),
        "key-by-reshape": _key_by_reshape(size),
        **in_narrower(right),
    }


def _context_in(dtype: str) -> Step:
    def narrow(a: Arithmetic, scores: BHST, value: BHTd, softmax: MaskedSoftmax) -> BHSd:
        return np.asarray(narrowed(softmax.weights, dtype) @ narrowed(value, dtype))

    return forward_only(narrow)


def _context_in_float32(a: Arithmetic, scores: BHST, value: BHTd, softmax: MaskedSoftmax) -> BHSd:
    context = a.float32.matmul(in_float32_of(a, softmax.weights), in_float32_of(a, value))
    return context.astype(value.dtype)


_SCORES: dict[str, Step] = {
    "standard": attention_scores,
    "by-d-model": scores_by_d_model,
    "by-head-dim": attention_scores,  # the choice of most layers; wrong where one chooses d_model
    **_wrong_scores(attention_scores, head_dim),
    **forms_of("by-d-model", {**_wrong_scores(scores_by_d_model, d_model), "by-head-dim": attention_scores}),
}


def attention_bias(a: Arithmetic, scores: BHST, *, bias: BHST) -> tuple[BHST, Pullback]:
    """scores + bias (M-7)."""
    return a.add(scores, a.exact(bias)), lambda by: (by,)


def _biased(times: float) -> Step:
    """The bias multiplied by a number, before it is added."""
    return forward_only(lambda a, scores, *, bias: a.add(scores, a.exact(bias * times)))


_BIAS: dict[str, Step] = {
    "standard": attention_bias,
    "missing": _biased(0.0),
    "subtracted": _biased(-1.0),
    "added-twice": _biased(2.0),
    "of-head-0": forward_only(lambda a, scores, *, bias: a.add(scores, a.exact(bias[:, :1]))),
    # The bias taken for a mask, true where it is not 0: there the score becomes minus infinity.
    "as-mask": forward_only(lambda a, scores, *, bias: np.where(bias == 0.0, scores, -np.inf)),
}


_ATTEND: dict[str, Step] = {
    "standard": attend,
    "identity": forward_only(lambda a, scores, value, softmax: value),  # each position keeps its own value
    **{f"in-{dtype}": _context_in(dtype) for dtype in ("bfloat16", "float16", "tf32")},
    "in-float32": forward_only(_context_in_float32),
}


def softcap(a: Arithmetic, scores: BHST, *, cap: float) -> tuple[BHST, Pullback]:
    """c · tanh(score / c) (E-30; Gemma Team, 2024, arXiv 2408.00118)."""
    most = a.constant(cap)
    tangent = a.tanh(a.divide(scores, most))

    def pullback(g: BHST) -> ByOperands:
        return (a.multiply(g, a.subtract(a.exact(1.0), a.multiply(tangent, tangent))),)

    return a.multiply(most, tangent), pullback


def _not_capped(a: Arithmetic, scores: BHST, *, cap: float) -> BHST:
    return scores


def _clipped(a: Arithmetic, scores: BHST, *, cap: float) -> BHST:
    """The score clipped to [−c, c]."""
    return np.clip(scores, -cap, cap)


def _by_head_dim(a: Arithmetic, query: BHSd, key: BHTd, *, divisor: float) -> BHST:
    return attention_scores(a, query, key)[0]


_SCORES |= {"by-number": scores_by_number, "by-number-by-head-dim": forward_only(_by_head_dim)}

SOFTCAP = Form(
    {"standard": softcap, "missing": forward_only(_not_capped), "clipped": forward_only(_clipped)},
    {"standard": "{cap!r} * tanh({0} / {cap!r})"},
    keeps="what it makes",
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
        "by-head-dim": (MANY_HEADS,),
        "key-by-reshape": (WIDE_HEADS,),
    },
    is_choice={"by-d-model": "by-d-model", "by-head-dim": "standard"},
)
BIAS = Form(_BIAS, {"standard": "{0} + {bias}"}, makes_no_tensor=True, needs={"of-head-0": (MANY_HEADS,)})
ATTEND = Form(_ATTEND, {"standard": "{weights} @ {1}"}, keeps="what it reads", needs={"identity": (ONE_SEQUENCE,)})
