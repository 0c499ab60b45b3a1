"""A Transformer encoder layer, batch first, as pure functions over a tree of parameters.

Shapes: B batch, S sequence, D d_model, H num_heads, d = D / H, F d_ff. The tree:

    norm1, norm2       gain [D], shift [D]
    attention          query, key, value: kernel [D, H, d], bias [H, d];  output: kernel [H, d, D], bias [D]
    feed_forward       hidden: kernel [D, F], bias [F];  output: kernel [F, D], bias [D]
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

Tree = dict[str, Any]
Tap = Callable[[str, Array], Array]
"""Is shown every stage by name, in the order in which they are computed, and hands each one on."""

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),  # by erf; JAX's default is the tanh approximation
}


@dataclass(frozen=True)
class Config:
    """What the parameters do not say of themselves. Hashable, so that it can be static under `jax.jit`."""

    d_model: int
    num_heads: int
    activation: str
    placement: str
    epsilon: float

    def __post_init__(self) -> None:
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model = {self.d_model} is not divisible by num_heads = {self.num_heads}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation = {self.activation!r}, not one of {', '.join(ACTIVATIONS)}")
        if self.placement not in ("pre", "post"):
            raise ValueError(f"placement = {self.placement!r}, not one of pre, post")


def untapped(name: str, stage: Array) -> Array:
    return stage


def encoder_layer(config: Config, params: Tree, x: Array, mask: Array | None = None, tap: Tap = untapped) -> Array:
    """x [B, S, D]; mask None or bool, broadcast to [B, H, S, S], true where a key may be attended to."""
    norm = partial(layer_norm, epsilon=config.epsilon)
    activation = ACTIVATIONS[config.activation]

    if config.placement == "pre":
        x = tap("residual1", x + attention(params["attention"], tap("norm1", norm(params["norm1"], x)), mask, tap))
        h = tap("norm2", norm(params["norm2"], x))
        x = tap("residual2", x + feed_forward(params["feed_forward"], h, activation, tap))
    else:
        x = tap("residual1", x + attention(params["attention"], x, mask, tap))
        x = tap("norm1", norm(params["norm1"], x))
        x = tap("residual2", x + feed_forward(params["feed_forward"], x, activation, tap))
        x = tap("norm2", norm(params["norm2"], x))
    return tap("output", x)


def encoder_stages(config: Config, params: Tree, x: Array, mask: Array | None = None) -> dict[str, Array]:
    """Every stage by name: the tap is at work only while this is traced, so that it is as pure as the rest."""
    stages: dict[str, Array] = {}

    def tap(name: str, stage: Array) -> Array:
        stages[name] = stage
        return stage

    encoder_layer(config, params, x, mask, tap)
    return stages


def encoder_stage(name: str, config: Config, params: Tree, x: Array, mask: Array | None, stages: Tree) -> Array:
    """One stage, from `stages`: the tap puts these in the place of what would lead to them, which then falls away."""
    found: dict[str, Array] = {}

    def tap(stage_name: str, stage: Array) -> Array:
        found[stage_name] = stage
        return stages.get(stage_name, stage)

    encoder_layer(config, params, x, mask, tap)
    return found[name]


def layer_norm(p: Tree, x: Array, *, epsilon: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return p["gain"] * centred / jnp.sqrt(variance + epsilon) + p["shift"]


def attention(p: Tree, x: Array, mask: Array | None, tap: Tap) -> Array:
    """softmax(q kᵀ / √d) v in each of H heads."""

    def project(name: str) -> Array:
        heads = jnp.einsum("bsD,Dhd->bshd", x, p[name]["kernel"]) + p[name]["bias"]
        return tap(name, heads.reshape(x.shape)).reshape(heads.shape)  # seen as [B, S, D]

    q, k, v = project("query"), project("key"), project("value")  # [B, S, H, d]
    # jax.nn.dot_product_attention takes its softmax in float32, whatever it is given (jax-ml/jax#37457).
    if tap is untapped and x.dtype != jnp.float64:
        context = jax.nn.dot_product_attention(q, k, v, mask=mask)
    else:
        context = written_out_attention(q, k, v, mask, tap)
    context = tap("context_merged", context.reshape(x.shape)).reshape(context.shape)
    return tap("attention_output", jnp.einsum("bshd,hdD->bsD", context, p["output"]["kernel"]) + p["output"]["bias"])


def written_out_attention(q: Array, k: Array, v: Array, mask: Array | None, tap: Tap) -> Array:
    """What jax.nn.dot_product_attention computes, step by step and in the dtype of q. [B, S, H, d] in and out."""
    q = tap("query_heads", q.swapaxes(1, 2))  # [B, H, S, d]
    k = tap("key_heads", k.swapaxes(1, 2))
    v = tap("value_heads", v.swapaxes(1, 2))
    scores = tap("attention_scores", q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]))  # [B, H, S, S]
    if mask is not None:
        # -1e30 and not -inf: the weights are the same, and an item that is all padding gives no NaN.
        scores = jnp.where(mask, scores, -1e30)
    weights = tap("attention_weights", jax.nn.softmax(scores, axis=-1))
    return tap("context", weights @ v).swapaxes(1, 2)


def feed_forward(p: Tree, x: Array, activation: Callable[[Array], Array], tap: Tap) -> Array:
    h = tap("ffn_hidden", x @ p["hidden"]["kernel"] + p["hidden"]["bias"])  # [B, S, F]
    h = tap("ffn_activation", activation(h))
    return tap("ffn_output", h @ p["output"]["kernel"] + p["output"]["bias"])
