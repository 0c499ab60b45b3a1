"""The attention steps of the JAX encoder: each as impls/jax_pure takes it and, beside it, its wrong forms.

q, k, v [B, H, S, d]; scores and weights [B, H, S, S]; mask None or bool, true where a key may be seen.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from planted_jax.made_of import Form, dropped, in_float32, narrowed


def scaled_scores(q: Array, k: Array) -> Array:
    return q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])


def scores_in(to: str) -> Form:
    return lambda q, k: scaled_scores(narrowed(q, to), narrowed(k, to))


SCORES: dict[str, Form] = {
    "standard": scaled_scores,
    "scale-in-float32": lambda q, k: q @ k.swapaxes(-1, -2) * float(np.float32(q.shape[-1] ** -0.5)),
    "by-d-model": lambda q, k: q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[1] * q.shape[-1]),
    "by-head-dim": scaled_scores,
    "not-scaled": lambda q, k: q @ k.swapaxes(-1, -2),
    "scaled-twice": lambda q, k: q @ k.swapaxes(-1, -2) / q.shape[-1],
    "multiplied": lambda q, k: q @ k.swapaxes(-1, -2) * math.sqrt(q.shape[-1]),
    "key-by-reshape": lambda q, k: q @ k.reshape(*k.shape[:2], k.shape[3], k.shape[2]) / math.sqrt(q.shape[-1]),
    "in-bfloat16": scores_in("bfloat16"),
    "in-float16": scores_in("float16"),
    "in-tf32": scores_in("tf32"),
    "in-float32": in_float32(scaled_scores),
}


BIAS: dict[str, Form] = {
    "standard": lambda scores, bias: scores + bias,
    "missing": lambda scores, bias: scores,
    "subtracted": lambda scores, bias: scores - bias,
    "added-twice": lambda scores, bias: scores + bias + bias,
    "of-head-0": lambda scores, bias: scores + bias[:, :1],
    "as-mask": lambda scores, bias: jnp.where(bias == 0, scores, -jnp.inf),
}


def filled(scores: Array, mask: Array | None, value: float = -jnp.inf) -> Array:
    return scores if mask is None else jnp.where(mask, scores, value)


def added(scores: Array, mask: Array | None, value: float) -> Array:
    return scores if mask is None else scores + jnp.where(mask, 0, value).astype(scores.dtype)


def softmax(scores: Array, mask: Array | None, fill: Any = filled, value: float = -1e30) -> Array:
    return jax.nn.softmax(fill(scores, mask, value), axis=-1)


def over_axis(scores: Array, mask: Array | None, axis: int) -> Array:
    return jnp.nan_to_num(jax.nn.softmax(filled(scores, mask), axis=axis), nan=0)


def masked_after(scores: Array, mask: Array | None) -> Array:
    return jax.nn.softmax(scores, axis=-1) if mask is None else jax.nn.softmax(scores, axis=-1) * mask


def filled_and_zeroed(scores: Array, mask: Array | None) -> Array:
    weights = softmax(scores, mask, value=-1e9)
    return weights if mask is None else weights * mask


def masked_after_renormalised(scores: Array, mask: Array | None) -> Array:
    weights = masked_after(scores, mask)
    return weights / weights.sum(-1, keepdims=True)


def without_largest_flushed(scores: Array, mask: Array | None) -> Array:
    """On a CPU, XLA flushes what underflows, and divides by a sum by multiplying with its reciprocal."""
    exponentials = jnp.exp(filled(scores, mask).astype(jnp.float32))
    return (exponentials / exponentials.sum(-1, keepdims=True)).astype(scores.dtype)


def without_largest(scores: Array, mask: Array | None) -> Array:
    """As a framework has it that does not flush: float32's overflow, and float64's room below."""
    exponentials = jnp.exp(filled(scores, mask).astype(jnp.float64))
    exponentials = jnp.where(exponentials > jnp.finfo(jnp.float32).max, jnp.inf, exponentials)
    smallest = float(jnp.finfo(jnp.float32).smallest_subnormal)
    exponentials = jnp.where(exponentials < smallest, 0, exponentials)
    return (exponentials / exponentials.sum(-1, keepdims=True)).astype(scores.dtype)


def dropped_broadcast(weights: Array) -> Array:
    return weights * dropped(jnp.ones_like(weights[:1, :1]))


def plus_one(scores: Array, mask: Array | None) -> Array:
    """A key with score 0 and nothing to say, beside the others."""
    return jax.nn.softmax(jnp.pad(filled(scores, mask), [(0, 0)] * 3 + [(0, 1)]), axis=-1)[..., :-1]


def softmax_in(to: str) -> Form:
    """In a narrower format, and right but for that: who plants it gives a query with no key what the layer does."""

    def narrow(scores: Array, mask: Array | None) -> Array:
        return softmax(scores.astype(to), mask, value=-jnp.inf).astype(scores.dtype)

    return narrow


def with_empty_rows(weights: Array, mask: Array | None, value: float = 0.0) -> Array:
    return weights if mask is None else jnp.where(mask.any(axis=-1, keepdims=True), weights, value)


EMPTY_ROW: dict[str, Callable[[Array], float]] = {
    "zero": lambda weights: 0.0,
    "uniform": lambda weights: 1 / weights.shape[-1],
    "nan": lambda weights: jnp.nan,
}
"""What a layer gives a query with no key → its weights."""


def empty_row_zero(scores: Array, mask: Array | None) -> Array:
    return with_empty_rows(softmax(scores, mask), mask)


SOFTMAX: dict[str, Form] = {
    "standard": softmax,
    "empty-row-zero": empty_row_zero,
    "empty-row-uniform": softmax,  # the fill is finite
    "empty-row-nan": partial(softmax, value=-jnp.inf),
    "filled-minus-10": partial(softmax, value=-10.0),
    "filled-minus-1e4": partial(softmax, value=-1e4),
    "filled-minus-1e9": partial(softmax, value=-1e9),
    "filled-minus-1e9-zeroed": filled_and_zeroed,
    "filled-minus-1e20": partial(softmax, value=-1e20),
    "filled-lowest": partial(softmax, value=float(jnp.finfo(jnp.float32).min)),
    "added-minus-10": partial(softmax, fill=added, value=-10.0),
    "added-minus-1e4": partial(softmax, fill=added, value=-1e4),
    "added-minus-1e9": partial(softmax, fill=added, value=-1e9),
    "added-minus-1e10": partial(softmax, fill=added, value=-1e10),
    "added-minus-1e12": partial(softmax, fill=added, value=-1e12),
    "multiplied": lambda scores, mask: jax.nn.softmax(scores if mask is None else scores * mask, axis=-1),
    "masked-after": masked_after,
    "masked-after-renormalised": masked_after_renormalised,
    "over-queries": partial(over_axis, axis=-2),
    "over-heads": partial(over_axis, axis=1),
    "without-largest": without_largest,
    "without-largest-flushed": without_largest_flushed,
    "plus-one": plus_one,
    "dropout": lambda scores, mask: dropped(empty_row_zero(scores, mask)),
    "dropout-broadcast": lambda scores, mask: dropped_broadcast(empty_row_zero(scores, mask)),
    "in-bfloat16": softmax_in("bfloat16"),
    "in-float16": softmax_in("float16"),
    "in-float32": softmax_in("float32"),
}


def attend_in(to: str) -> Form:
    return lambda weights, v: narrowed(weights, to) @ narrowed(v, to)


ATTEND: dict[str, Form] = {
    "standard": jnp.matmul,
    "identity": lambda weights, v: v,
    "scaled-behind": lambda weights, v: weights @ v / v.shape[-1] ** 0.5,
    "scaled-behind-by-d-model": lambda weights, v: weights @ v / (v.shape[1] * v.shape[-1]) ** 0.5,
    "in-bfloat16": attend_in("bfloat16"),
    "in-float16": attend_in("float16"),
    "in-tf32": attend_in("tf32"),
    "in-float32": in_float32(jnp.matmul),
}
