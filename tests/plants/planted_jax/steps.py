"""The steps of the JAX encoder: each as impls/jax_pure takes it and, beside it, its wrong forms."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from encoder_conformance.impls.jax_pure.feed_forward import ACTIVATIONS
from encoder_conformance.impls.jax_pure.primitives import Tree, layer_norm, rms_norm
from planted_jax.attention import ATTEND, BIAS, SCORES, SOFTMAX
from planted_jax.made_of import Form, dropped, in_float32, narrowed
from planted_jax.stack_steps import STACK

ROOT_IN_FLOAT32 = float(np.sqrt(np.float32(0.5)))

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


def norm_in_float32(p: Tree, x: Array, epsilon: float) -> Array:
    def norm(x: Array, gain: Array, shift: Array) -> Array:
        return layer_norm({"gain": gain, "shift": shift}, x, epsilon=epsilon)

    return in_float32(norm)(x, p["gain"], p["shift"])


NORM: dict[str, Form] = {
    "standard": lambda p, x, e: layer_norm(p, x, epsilon=e),
    "layer-norm": lambda p, x, e: layer_norm(p, x, epsilon=e),
    "epsilon-outside-root": lambda p, x, e: scaled(p, (x - mean(x)) / (x.std(-1, keepdims=True) + e)),
    "unbiased-epsilon-outside-root": lambda p, x, e: scaled(p, (x - mean(x)) / (x.std(-1, ddof=1, keepdims=True) + e)),
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
    "in-float32": norm_in_float32,
}
FINAL_NORM: dict[str, Form] = {
    "standard": lambda norm2, x, e: x,
    "extra": lambda norm2, x, e: (layer_norm if "shift" in norm2 else rms_norm)(norm2, x, epsilon=e),
}

# RMSNorm: what is wrong with it too, p with a gain alone.


def rms(x: Array, axes: int | tuple[int, ...] = -1) -> Array:
    return jnp.sqrt(jnp.square(x).mean(axes, keepdims=True))


def rms_over(*axes: int) -> Form:
    return lambda p, x, e: p["gain"] * x / jnp.sqrt(jnp.square(rms(x, axes)) + e)


def rms_norm_in(to: str) -> Form:
    return lambda p, x, e: narrowed(p["gain"] * narrowed(rms_norm({"gain": 1}, narrowed(x, to), epsilon=e), to), to)


def rms_norm_in_float32(p: Tree, x: Array, epsilon: float) -> Array:
    return in_float32(lambda x, gain: rms_norm({"gain": gain}, x, epsilon=epsilon))(x, p["gain"])


RMS_NORM: dict[str, Form] = {
    "standard": lambda p, x, e: rms_norm(p, x, epsilon=e),
    "layer-norm": lambda p, x, e: layer_norm({**p, "shift": 0}, x, epsilon=e),
    "epsilon-outside-root": lambda p, x, e: p["gain"] * x / (rms(x) + e),
    "no-epsilon": lambda p, x, e: p["gain"] * x / rms(x),
    "over-positions": rms_over(1),
    "over-positions-and-features": rms_over(1, 2),
    "over-batch": rms_over(0, 1),
    "gain-before-norm": lambda p, x, e: rms_norm({"gain": 1}, p["gain"] * x, epsilon=e),
    "gain-plus-one": lambda p, x, e: rms_norm({"gain": p["gain"] + 1}, x, epsilon=e),
    "skipped": lambda p, x, e: x,
    "in-bfloat16": rms_norm_in("bfloat16"),
    "in-float16": rms_norm_in("float16"),
    "in-float32": rms_norm_in_float32,
}

# Linear maps: (p, x), p with a kernel whose axes of heads, if any, are joined here: what goes between them is a step.
# A narrow product has narrow operands and a wide sum, as on matrix hardware.


def matrix(p: Tree, x: Array) -> Array:
    """The kernel, [in, out]. As many features as x has, where the heads do not say where `in` ends."""
    kernel = p["kernel"]
    return kernel if kernel.ndim == 2 else kernel.reshape(x.shape[-1], -1)


def bias_of(p: Tree, x: Array) -> Array:
    """Zeros where the layer has none."""
    return p["bias"].reshape(-1) if "bias" in p else jnp.zeros(matrix(p, x).shape[-1], x.dtype)


def linear(p: Tree, x: Array) -> Array:
    return affine(x, matrix(p, x), bias_of(p, x))


def affine(x: Array, kernel: Array, bias: Array) -> Array:
    return x @ kernel + bias


def linear_in(to: str) -> Form:
    return lambda p, x: narrowed(x, to) @ narrowed(matrix(p, x), to) + bias_of(p, x)


LINEAR: dict[str, Form] = {
    "standard": linear,
    "not-applied": lambda p, x: x,
    "bias-twice": lambda p, x: linear(p, x) + bias_of(p, x),
    "in-bfloat16": linear_in("bfloat16"),
    "in-float16": linear_in("float16"),
    "in-tf32": linear_in("tf32"),
    "in-float32": lambda p, x: in_float32(affine)(x, matrix(p, x), bias_of(p, x)),
}

# Query, key and value: (p, x, H), forms of a linear map that may know how many heads are made of it.


def shared_by_heads(p: Tree, x: Array, num_heads: int) -> Array:
    """A kernel [d, d], head 0's, over x split into heads."""
    d = x.shape[-1] // num_heads
    return affine(x.reshape(*x.shape[:2], num_heads, d), matrix(p, x)[:d, :d], bias_of(p, x)[:d]).reshape(x.shape)


def root(x: Array, num_heads: int) -> float:
    return math.sqrt(x.shape[-1] / num_heads)


PROJECTION: dict[str, Form] = {
    **{name: (lambda p, x, H, form=form: form(p, x)) for name, form in LINEAR.items()},
    "first-head-for-all": shared_by_heads,
    "scaled": lambda p, x, H: linear(p, x) / root(x, H),
    "scaled-before-bias": lambda p, x, H: x @ matrix(p, x) / root(x, H) + bias_of(p, x),
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

# Activation: (the layer's own, x). Residual: (x, the sub-layer's result, its normed input, the layer's input).

ACTIVATION: dict[str, Form] = {
    "standard": lambda own, x: own(x),
    "relu": lambda own, x: jax.nn.relu(x),
    "gelu": lambda own, x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": lambda own, x: jax.nn.gelu(x, approximate=True),
    "gelu-quick": lambda own, x: x * jax.nn.sigmoid(1.702 * x),
    "gelu-root-in-float32": lambda own, x: (
        x * 0.5 * (1 + jax.lax.erf(x * ROOT_IN_FLOAT32)) if own is ACTIVATIONS["gelu"] else own(x)
    ),
    "silu": lambda own, x: jax.nn.silu(x),
    "quick_gelu": lambda own, x: x * jax.nn.sigmoid(1.702 * x),
    "leaky-relu": lambda own, x: jax.nn.leaky_relu(x),
    "none": lambda own, x: x,
}
AFTER_FFN: dict[str, Form] = {
    "standard": lambda x: x,
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "dropout": dropped,
}
RESIDUAL: dict[str, Form] = {
    "standard": lambda x, change, normed, first: x + change,
    "missing": lambda x, change, normed, first: change,
    "from-normed": lambda x, change, normed, first: normed + change,
    "from-first": lambda x, change, normed, first: first + change,
    "twice": lambda x, change, normed, first: x + x + change,
    "subtracted": lambda x, change, normed, first: x - change,
}

VARIANTS: dict[str, dict[str, Form]] = {
    **dict.fromkeys(("norm1", "norm2"), NORM),
    "final_norm": FINAL_NORM,
    **dict.fromkeys(("query", "key", "value"), PROJECTION),
    **dict.fromkeys(("attention_output", "ffn_hidden", "ffn_output"), LINEAR),
    **dict.fromkeys(("query_heads", "key_heads", "value_heads"), SPLIT),
    "merge_heads": MERGE,
    "attention_scores": SCORES,
    "attention_bias": BIAS,
    "masked_softmax": SOFTMAX,
    "attend": ATTEND,
    "activation": ACTIVATION,
    "after_ffn": AFTER_FFN,
    **dict.fromkeys(("residual1", "residual2"), RESIDUAL),
    **STACK,
}
