"""The steps of the JAX encoder: each as impls/jax_pure takes it and, beside it, its wrong forms."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from impls.jax_pure.encoder import Tree, layer_norm

Form = Callable[..., Array]


def narrowed(x: Array, to: str) -> Array:
    """To a narrower format and back. A CPU has no tf32: 8 bits of exponent and 10 of fraction."""
    return jax.lax.reduce_precision(x, 8, 10) if to == "tf32" else x.astype(to).astype(x.dtype)


def dropped(x: Array, seed: int) -> Array:
    """Dropout of 0.1 left on, the same each time."""
    return jnp.where(jax.random.bernoulli(jax.random.key(seed), 0.9, x.shape), x / 0.9, 0)


# LayerNorm: (p, x, epsilon), p with gain and shift [D], x [B, S, D].

mean = partial(jnp.mean, axis=-1, keepdims=True)
var = partial(jnp.var, axis=-1, keepdims=True)
NO_GAIN: Tree = {"gain": 1, "shift": 0}


def scaled(p: Tree, normal: Array) -> Array:
    return p["gain"] * normal + p["shift"]


def over(*axes: int) -> Form:
    def norm(p: Tree, x: Array, epsilon: float) -> Array:
        centred = x - x.mean(axes, keepdims=True)
        return scaled(p, centred / jnp.sqrt(x.var(axes, keepdims=True) + epsilon))

    return norm


def fast_variance(p: Tree, x: Array, epsilon: float) -> Array:
    """E[x²] − E[x]² in float32."""
    narrow = x.astype(jnp.float32)
    variance = jnp.maximum(mean(jnp.square(narrow)) - jnp.square(mean(narrow)), 0)
    return scaled(p, (x - mean(x)) / jnp.sqrt(variance.astype(x.dtype) + epsilon))


def norm_in(to: str) -> Form:
    """The input rounded, the normalised values, and again after gain and shift."""

    def narrow(p: Tree, x: Array, epsilon: float) -> Array:
        normal = narrowed(layer_norm(NO_GAIN, narrowed(x, to), epsilon=epsilon), to)
        return narrowed(scaled(p, normal), to)

    return narrow


NORM: dict[str, Form] = {
    "standard": lambda p, x, e: layer_norm(p, x, epsilon=e),
    "epsilon-outside-root": lambda p, x, e: scaled(p, (x - mean(x)) / (x.std(-1, keepdims=True) + e)),
    "no-epsilon": lambda p, x, e: layer_norm(p, x, epsilon=0.0),
    "unbiased-variance": lambda p, x, e: scaled(p, (x - mean(x)) / jnp.sqrt(var(x, ddof=1) + e)),
    "fast-variance": fast_variance,
    "over-positions": over(1),
    "over-positions-and-features": over(1, 2),
    "over-batch": over(0, 1),
    "root-mean-square": lambda p, x, e: scaled(p, x * jax.lax.rsqrt(mean(jnp.square(x)) + e)),
    "not-centred": lambda p, x, e: scaled(p, x / jnp.sqrt(var(x) + e)),
    "gain-before-norm": lambda p, x, e: layer_norm(NO_GAIN, scaled(p, x), epsilon=e),
    "gain-plus-one": lambda p, x, e: layer_norm({**p, "gain": p["gain"] + 1}, x, epsilon=e),
    "skipped": lambda p, x, e: x,
    "in-bfloat16": norm_in("bfloat16"),
    "in-float16": norm_in("float16"),
    "in-float32": norm_in("float32"),
}
FINAL_NORM: dict[str, Form] = {
    "standard": lambda norm2, x, e: x,
    "extra": lambda norm2, x, e: layer_norm(norm2, x, epsilon=e),
}

# Linear maps: (p, x), p with a kernel whose axes of heads, if any, are joined here: what goes between them is a step.
# A narrow product has narrow operands and a wide sum, as on matrix hardware.


def matrix(p: Tree, x: Array) -> Array:
    """The kernel, [in, out]. As many features as x has, where the heads do not say where `in` ends."""
    kernel = p["kernel"]
    return kernel if kernel.ndim == 2 else kernel.reshape(x.shape[-1], -1)


def linear(p: Tree, x: Array) -> Array:
    return x @ matrix(p, x) + p["bias"].reshape(-1)


def linear_in(to: str) -> Form:
    return lambda p, x: narrowed(x, to) @ narrowed(matrix(p, x), to) + p["bias"].reshape(-1)


LINEAR: dict[str, Form] = {
    "standard": linear,
    "not-applied": lambda p, x: x,
    "bias-twice": lambda p, x: linear(p, x) + p["bias"].reshape(-1),
    "in-bfloat16": linear_in("bfloat16"),
    "in-float16": linear_in("float16"),
    "in-tf32": linear_in("tf32"),
    "in-float32": linear_in("float32"),
}

# Heads: split is (x [B, S, D], H) → [B, H, S, d], merge the way back.


def split(x: Array, num_heads: int) -> Array:
    return x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2)


def merge(x: Array) -> Array:
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


SPLIT: dict[str, Form] = {
    "standard": split,
    "interleaved": lambda x, H: jnp.einsum("bsdh->bhsd", x.reshape(*x.shape[:2], -1, H)),
    "by-reshape": lambda x, H: x.reshape(x.shape[0], H, x.shape[1], -1),
    "across-batch": lambda x, H: split(x.swapaxes(0, 1), H),
}
MERGE: dict[str, Form] = {
    "standard": merge,
    "interleaved": lambda x: jnp.einsum("bhsd->bsdh", x).reshape(x.shape[0], x.shape[2], -1),
    "by-reshape": lambda x: x.reshape(x.shape[0], x.shape[2], -1),
    "across-batch": lambda x: merge(x).swapaxes(0, 1),
    "reversed": lambda x: merge(jnp.flip(x, 1)),
    "without-last": lambda x: merge(x.at[:, -1].set(0)),
}

# Attention: q, k, v [B, H, S, d]; scores and weights [B, H, S, S]; mask None or bool, true where a key may be seen.

SCORES: dict[str, Form] = {
    "standard": lambda q, k: q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]),
    "by-d-model": lambda q, k: q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[1] * q.shape[-1]),
    "not-scaled": lambda q, k: q @ k.swapaxes(-1, -2),
    "scaled-twice": lambda q, k: q @ k.swapaxes(-1, -2) / q.shape[-1],
    "multiplied": lambda q, k: q @ k.swapaxes(-1, -2) * math.sqrt(q.shape[-1]),
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


def masked_after_renormalised(scores: Array, mask: Array | None) -> Array:
    weights = masked_after(scores, mask)
    return weights / weights.sum(-1, keepdims=True)


def without_largest(scores: Array, mask: Array | None) -> Array:
    exponentials = jnp.exp(filled(scores, mask).astype(jnp.float32))
    return (exponentials / exponentials.sum(-1, keepdims=True)).astype(scores.dtype)


def plus_one(scores: Array, mask: Array | None) -> Array:
    """A key with score 0 and nothing to say, beside the others."""
    return jax.nn.softmax(jnp.pad(filled(scores, mask), [(0, 0)] * 3 + [(0, 1)]), axis=-1)[..., :-1]


def softmax_in(to: str) -> Form:
    return lambda scores, mask: softmax(scores.astype(to), mask, value=-jnp.inf).astype(scores.dtype)


SOFTMAX: dict[str, Form] = {
    "standard": softmax,
    "filled-minus-10": partial(softmax, value=-10.0),
    "filled-minus-1e4": partial(softmax, value=-1e4),
    "filled-minus-1e9": partial(softmax, value=-1e9),
    "filled-lowest": partial(softmax, value=float(jnp.finfo(jnp.float32).min)),
    "added-minus-10": partial(softmax, fill=added, value=-10.0),
    "added-minus-1e4": partial(softmax, fill=added, value=-1e4),
    "added-minus-1e9": partial(softmax, fill=added, value=-1e9),
    "multiplied": lambda scores, mask: jax.nn.softmax(scores if mask is None else scores * mask, axis=-1),
    "masked-after": masked_after,
    "masked-after-renormalised": masked_after_renormalised,
    "over-queries": partial(over_axis, axis=-2),
    "over-heads": partial(over_axis, axis=1),
    "without-largest": without_largest,
    "plus-one": plus_one,
    "dropout": lambda scores, mask: dropped(softmax(scores, mask), seed=1),
    "in-bfloat16": softmax_in("bfloat16"),
    "in-float16": softmax_in("float16"),
    "in-float32": softmax_in("float32"),
}
ATTEND: dict[str, Form] = {
    "standard": lambda weights, v: weights @ v,
    "identity": lambda weights, v: v,
    "in-bfloat16": lambda weights, v: narrowed(weights, "bfloat16") @ narrowed(v, "bfloat16"),
    "in-tf32": lambda weights, v: narrowed(weights, "tf32") @ narrowed(v, "tf32"),
}

# Activation: (the layer's own, x). Residual: (x, the sub-layer's result, its normed input, the layer's input).

ACTIVATION: dict[str, Form] = {
    "standard": lambda own, x: own(x),
    "relu": lambda own, x: jax.nn.relu(x),
    "gelu": lambda own, x: jax.nn.gelu(x, approximate=False),
    "gelu-tanh": lambda own, x: jax.nn.gelu(x, approximate=True),
    "gelu-quick": lambda own, x: x * jax.nn.sigmoid(1.702 * x),
    "silu": lambda own, x: jax.nn.silu(x),
    "leaky-relu": lambda own, x: jax.nn.leaky_relu(x),
    "none": lambda own, x: x,
}
AFTER_FFN: dict[str, Form] = {
    "standard": lambda x: x,
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "dropout": partial(dropped, seed=2),
}
RESIDUAL: dict[str, Form] = {
    "standard": lambda x, change, normed, first: x + change,
    "missing": lambda x, change, normed, first: change,
    "from-normed": lambda x, change, normed, first: normed + change,
    "from-first": lambda x, change, normed, first: first + change,
    "twice": lambda x, change, normed, first: x + x + change,
    "subtracted": lambda x, change, normed, first: x - change,
}

WAYS: dict[str, dict[str, Form]] = {
    **dict.fromkeys(("norm1", "norm2"), NORM),
    "final_norm": FINAL_NORM,
    **dict.fromkeys(("query", "key", "value", "attention_output", "ffn_hidden", "ffn_output"), LINEAR),
    **dict.fromkeys(("query_heads", "key_heads", "value_heads"), SPLIT),
    "merge_heads": MERGE,
    "attention_scores": SCORES,
    "masked_softmax": SOFTMAX,
    "attend": ATTEND,
    "activation": ACTIVATION,
    "after_ffn": AFTER_FFN,
    **dict.fromkeys(("residual1", "residual2"), RESIDUAL),
}
