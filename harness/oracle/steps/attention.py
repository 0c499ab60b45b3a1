"""Scores and context (E-5), and the ways to get them wrong.

query, key, value [B, H, S, d]; scores and weights [B, H, S, S], the last axis counts keys.
"""

from collections.abc import Callable

import numpy as np

from encoder_conformance.oracle.arithmetic import Arithmetic, Array
from encoder_conformance.oracle.steps.forward_only import forward_only, in_float32_of, in_narrower, narrowed, own_forms
from encoder_conformance.oracle.steps.softmax import Softmax
from encoder_conformance.oracle.tape import Pullback, Step

Size = Callable[[Array], int]
"""A query [B, H, S, d] → the size by whose root its scores are divided."""


def head_dim(query: Array) -> int:
    return int(query.shape[-1])


def d_model(query: Array) -> int:
    return int(query.shape[1] * query.shape[-1])


def attention_scores(a: Arithmetic, query: Array, key: Array) -> tuple[Array, Pullback]:
    """query · keyᵀ / √d, [B, H, S, S], before any mask (E-5; Vaswani et al., 2017, eq. 1)."""
    return _scores_over_root(a, query, key, head_dim(query))


def scores_by_d_model(a: Arithmetic, query: Array, key: Array) -> tuple[Array, Pullback]:
    """query · keyᵀ / √D, D = H·d (E-13)."""
    return _scores_over_root(a, query, key, d_model(query))


def _scores_over_root(a: Arithmetic, query: Array, key: Array, size: int) -> tuple[Array, Pullback]:
    root = a.sqrt(a.exact(float(size)))
    scores = a.divide(a.matmul(query, key.swapaxes(-1, -2)), root)

    def pullback(g: Array) -> tuple[Array, ...]:
        scaled = a.divide(g, root)
        return a.matmul(scaled, key), a.matmul(scaled.swapaxes(-1, -2), query)

    return scores, pullback


def attend(a: Arithmetic, scores: Array, value: Array, softmax: Softmax) -> tuple[Array, Pullback]:
    """softmax(scores) [B, H, S, S] · value [B, H, S, d] (E-5).

    The pullback is that of fused attention: it makes the weights again from their logarithm's sum, and takes the
    softmax's inner product over the features of the context (Dao et al., 2022, arXiv 2205.14135, algorithm 4). It is
    the noisier of the usual ways, so that its condition holds for all of them.
    """
    context = a.matmul(softmax.weights, value)

    def pullback(g: Array) -> tuple[Array, ...]:
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


def _through_largest(kept: Array, by_scores: Array) -> Array:
    """What goes through the maximum of exp(s − max), [B, H, S, T]: less the sum over the keys, to the largest score.

    The weights do not change with the maximum, and so that sum is 0 but for rounding (rule C-6).
    """
    by_largest = np.zeros_like(by_scores)
    at = kept.argmax(axis=-1)[..., None]
    np.put_along_axis(by_largest, at, -by_scores.sum(axis=-1, keepdims=True), axis=-1)
    return by_largest


def _scale_in_float32(size: Size) -> Step:
    """query · keyᵀ times 1/√size as float32 holds it."""

    def scores(a: Arithmetic, query: Array, key: Array) -> Array:
        scale = a.exact(float(np.float32(1.0 / np.sqrt(size(query)))))
        return a.multiply(a.matmul(query, key.swapaxes(-1, -2)), scale)

    return forward_only(scores)


def _divided_by(divisor: Callable[[Array], float]) -> Step:
    def scores(a: Arithmetic, query: Array, key: Array) -> Array:
        return a.divide(a.matmul(query, key.swapaxes(-1, -2)), a.exact(divisor(query)))

    return forward_only(scores)


def _key_by_reshape(size: Size) -> Step:
    """The key read as [B, H, d, S] with no transpose."""

    def scores(a: Arithmetic, query: Array, key: Array) -> Array:
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


def _identity(a: Arithmetic, weights: Array, value: Array, softmax: Softmax) -> Array:
    """Attention that is not there: each position keeps its own value."""
    return value


def _context_in(dtype: str) -> Step:
    def narrow(a: Arithmetic, scores: Array, value: Array, softmax: Softmax) -> Array:
        return np.asarray(narrowed(softmax.weights, dtype) @ narrowed(value, dtype))

    return forward_only(narrow)


def _context_in_float32(a: Arithmetic, scores: Array, value: Array, softmax: Softmax) -> Array:
    context = a.float32.matmul(in_float32_of(a, softmax.weights), in_float32_of(a, value))
    return context.astype(value.dtype)


SCORES: dict[str, Step] = {
    "standard": attention_scores,
    "by-d-model": scores_by_d_model,
    "by-head-dim": attention_scores,  # the choice of most layers; wrong where one chooses d_model
    **_wrong_scores(attention_scores, head_dim),
    **own_forms("by-d-model", {**_wrong_scores(scores_by_d_model, d_model), "by-head-dim": attention_scores}),
}


def attention_bias(a: Arithmetic, scores: Array, *, bias: Array) -> tuple[Array, Pullback]:
    """scores + bias, [B, H, S, S] (M-7)."""
    return a.add(scores, a.exact(bias)), lambda by: (by,)


def _biased(times: Callable[[Array], float]) -> Step:
    """The bias multiplied by what `times` makes of its shape."""

    def biased(a: Arithmetic, scores: Array, *, bias: Array) -> Array:
        return a.add(scores, a.exact(bias * times(bias)))

    return forward_only(biased)


def _bias_of_head_0(a: Arithmetic, scores: Array, *, bias: Array) -> Array:
    return a.add(scores, a.exact(bias[:, :1]))


def _bias_as_mask(a: Arithmetic, scores: Array, *, bias: Array) -> Array:
    """Taken for a mask, true where it is not 0: there the score becomes minus infinity."""
    return np.where(bias == 0.0, scores, -np.inf)


BIAS: dict[str, Step] = {
    "standard": attention_bias,
    "missing": _biased(lambda bias: 0.0),
    "subtracted": _biased(lambda bias: -1.0),
    "added-twice": _biased(lambda bias: 2.0),
    "of-head-0": forward_only(_bias_of_head_0),
    "as-mask": forward_only(_bias_as_mask),
}


ATTEND: dict[str, Step] = {
    "standard": attend,
    "identity": forward_only(_identity),
    "in-bfloat16": _context_in("bfloat16"),
    "in-float16": _context_in("float16"),
    "in-tf32": _context_in("tf32"),
    "in-float32": forward_only(_context_in_float32),
}
