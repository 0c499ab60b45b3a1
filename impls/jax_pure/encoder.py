"""A Transformer encoder layer, batch first, as pure functions over a tree of parameters.

Shapes: B batch, S sequence, D d_model, H num_heads, d = D / H, F d_ff. The tree:

    norm1, norm2       gain [D], shift [D]
    attention          query, key, value: kernel [D, H, d], bias [H, d];  output: kernel [H, d, D], bias [D]
    feed_forward       hidden: kernel [D, F], bias [F];  output: kernel [F, D], bias [D]

A bias that is not there is not added, RMSNorm has no shift, and where the heads share their projections these are
kernel [d, d], bias [d].
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

Tree = dict[str, Any]
Tap = Callable[[str, Array], Array]
"""Is shown every stage by name, in the order in which they are computed, and hands each one on."""

Heads = tuple[Array, Array, Array]
"""Query [B, S, H, d], key and value [B, T, H, d]; in self-attention T is S."""

Drop = Callable[[str, Array], Array]
"""Does the dropout of a placement, and hands what is left on."""

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),  # by erf; JAX's default is the tanh approximation
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "silu": jax.nn.silu,
}


class Dropout(NamedTuple):
    """The probability that an element becomes 0 in training, at each placement."""

    attention_weights: float = 0.0
    attention_output: float = 0.0
    ffn_activation: float = 0.0
    ffn_output: float = 0.0
    embedded: float = 0.0


NO_DROPOUT = Dropout()


@dataclass(frozen=True)
class Config:
    """What the parameters do not say of themselves. Hashable, so that it can be static under `jax.jit`."""

    d_model: int
    num_heads: int
    activation: str
    placement: str
    epsilon: float
    norm: str = "layer_norm"
    scale: str = "head_dim"
    masked_score: float | None = None
    """What a masked score becomes; minus infinity if it is None."""
    empty_row: str = "uniform"
    """The weights of a query with no key to attend to: uniform, zero or nan."""
    positions: str = "none"
    """What a stack adds to its embedded tokens: none or sinusoidal."""
    dropout: Dropout = NO_DROPOUT

    @property
    def root(self) -> float:
        """What scores are divided by."""
        return math.sqrt(self.d_model if self.scale == "d_model" else self.d_model // self.num_heads)

    def __post_init__(self) -> None:
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model = {self.d_model} is not divisible by num_heads = {self.num_heads}")
        for what, known in CHOICES.items():
            if getattr(self, what) not in known:
                raise ValueError(f"{what} = {getattr(self, what)!r}, not one of {', '.join(known)}")


class Masks(NamedTuple):
    """Both broadcast to [B, H, S, S]. `allowed`, None or bool, is true where a key may be attended to; `bias`, None or
    in the dtype of x, is added to the scores."""

    allowed: Array | None = None
    bias: Array | None = None
    needed: Array | None = None
    """None or bool [B, S], false at padding that nothing is to be computed with: what `needed` gives."""
    padding_id: Array | None = None
    """The token id of padding, of which a stack with an embedding makes a mask; None where there is none."""


NO_MASKS = Masks()


def untapped(name: str, stage: Array) -> Array:
    return stage


def check_fit(config: Config, params: Tree, x: Array, masks: Masks) -> None:
    """Refuse what JAX would promote to a wider dtype, or broadcast."""
    dtype = params["norm1"]["gain"].dtype
    if x.dtype != dtype:
        raise TypeError(f"x is {x.dtype}, and the layer is {dtype}")
    if x.ndim != 3 or x.shape[-1] != config.d_model:
        raise ValueError(f"x is {list(x.shape)}, and the layer takes [batch, sequence, {config.d_model}]")
    B, S, _ = x.shape
    due, mask = (B, config.num_heads, S, S), masks.allowed
    if mask is not None and not all(size in (n, 1) for size, n in zip(mask.shape[::-1], due[::-1], strict=False)):
        raise ValueError(f"the mask is {list(mask.shape)}, which does not broadcast to {list(due)}")


def encoder_layer(
    config: Config,
    params: Tree,
    x: Array,
    masks: Masks = NO_MASKS,
    tap: Tap = untapped,
    key: Array | None = None,
) -> Array:
    """x [B, S, D]. With `key`, in training: what dropout is drawn from."""
    check_fit(config, params, x, masks)
    drop = undropped if key is None else partial(dropped, config.dropout, drawn_bits(config, params, x, key))
    norm = partial(NORMS[config.norm], epsilon=config.epsilon)
    activation = ACTIVATIONS[config.activation]

    if masks.needed is not None:
        x = jnp.where(masks.needed[:, :, None], x, 0)
    if config.placement == "pre":
        h = tap("norm1", norm(params["norm1"], x))
        h = attention(config, params["attention"], h, masks, tap, drop)
        x = tap("residual1", x + drop("attention_output", h))
        h = tap("norm2", norm(params["norm2"], x))
        h = feed_forward(params["feed_forward"], h, activation, tap, drop)
        x = tap("residual2", x + drop("ffn_output", h))
    else:
        h = attention(config, params["attention"], x, masks, tap, drop)
        x = tap("residual1", x + drop("attention_output", h))
        x = tap("norm1", norm(params["norm1"], x))
        h = feed_forward(params["feed_forward"], x, activation, tap, drop)
        x = tap("residual2", x + drop("ffn_output", h))
        x = tap("norm2", norm(params["norm2"], x))
    return tap("output", x)


def needed(config: Config, allowed: Any, valid: Any) -> Any:
    """[B, S], false at padding that nothing is to be computed with: a weight of 0 keeps out neither what overflows nor
    NaN. Uniform weights over every key are no 0: an item with a query that has no key keeps its padding.

    `allowed` [B, H, S, S] and `valid` [B, S], true where x holds data, are both bool, of NumPy or of JAX. It depends on
    the masks alone, so a batch needs it once, outside of what is compiled and not in every layer.
    """
    if config.empty_row != "uniform":
        return valid
    return valid | ~allowed.any(-1).all((1, 2))[:, None]


def undropped(placement: str, x: Array) -> Array:
    return x


def drawn_bits(config: Config, params: Tree, x: Array, key: Array) -> dict[str, Array]:
    """Random uint32 for each placement that drops, in the shape of what it drops from.

    One draw for all of them: each would be a generator of its own to compile, four of which take longer than the layer.
    """
    (B, S, D), F = x.shape, params["feed_forward"]["hidden"]["kernel"].shape[-1]
    shapes = {
        "attention_weights": (B, config.num_heads, S, S),
        "attention_output": (B, S, D),
        "ffn_activation": (B, S, F),
        "ffn_output": (B, S, D),
    }
    shapes = {name: shape for name, shape in shapes.items() if getattr(config.dropout, name)}
    if not shapes:
        return {}
    ends = list(accumulate(map(math.prod, shapes.values())))
    parts = jnp.split(jax.random.bits(key, (ends[-1],), jnp.uint32), ends[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def dropped(rates: Dropout, bits: dict[str, Array], placement: str, x: Array) -> Array:
    rate = getattr(rates, placement)
    if not rate:
        return x
    kept = bits[placement] >= jnp.uint32(round(rate * 2**32))
    return jnp.where(kept, x / (1 - rate), 0)


def layer_norm(p: Tree, x: Array, *, epsilon: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return p["gain"] * centred / jnp.sqrt(variance + epsilon) + p["shift"]


def rms_norm(p: Tree, x: Array, *, epsilon: float) -> Array:
    return p["gain"] * x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon)


NORMS: dict[str, Callable[..., Array]] = {"layer_norm": layer_norm, "rms_norm": rms_norm}
CHOICES: dict[str, Collection[str]] = {
    "activation": ACTIVATIONS,
    "placement": ("pre", "post"),
    "norm": NORMS,
    "scale": ("head_dim", "d_model"),
    "empty_row": ("uniform", "zero", "nan"),
    "positions": ("none", "sinusoidal"),
}


def attention(config: Config, p: Tree, x: Array, masks: Masks, tap: Tap, drop: Drop) -> Array:
    return attend(config, p, project(config, p, x, x, tap), masks, tap, drop)


def project(config: Config, p: Tree, x: Array, memory: Array, tap: Tap) -> Heads:
    """The query of x [B, S, D], and the key and the value of `memory` [B, T, D]."""

    def by_heads(name: str, x: Array) -> Array:
        shared = p[name]["kernel"].ndim == 2  # by the heads
        heads = linear(p[name], x.reshape(*x.shape[:2], config.num_heads, -1) if shared else x)
        return tap(name, heads.reshape(x.shape)).reshape(heads.shape)  # seen as [B, S, D]

    return by_heads("query", x), by_heads("key", memory), by_heads("value", memory)


def attend(config: Config, p: Tree, heads: Heads, masks: Masks, tap: Tap, drop: Drop) -> Array:
    """softmax(q kᵀ / √d + bias) v in each of H heads, and the output projection of them: [B, S, D]."""
    q, k, v = heads
    # jax.nn.dot_product_attention takes its softmax in float32, whatever it is given (jax-ml/jax#37457), and gives a
    # query with no key uniform weights, and drops none; float16 it does not take on a CPU (keras-team/keras-hub#2354).
    # What is more, or else, is written out.
    fused = q.dtype in (jnp.float32, jnp.bfloat16) and config.empty_row == "uniform" and config.masked_score is None
    if fused and tap is untapped and (drop is undropped or not config.dropout.attention_weights):
        context = jax.nn.dot_product_attention(q, k, v, masks.bias, masks.allowed, scale=1 / config.root)
    else:
        context = written_out_attention(config, heads, masks, tap, drop)
    merged = context.reshape(*context.shape[:2], config.d_model)
    context = tap("context_merged", merged).reshape(context.shape)
    return tap("attention_output", linear(p["output"], context, axes=2))


def written_out_attention(config: Config, heads: Heads, masks: Masks, tap: Tap, drop: Drop) -> Array:
    """What jax.nn.dot_product_attention computes, step by step and in the dtype of q. [B, S, H, d] in and out."""
    q, k, v = (head.swapaxes(1, 2) for head in heads)  # [B, H, S, d]
    q, k, v = tap("query_heads", q), tap("key_heads", k), tap("value_heads", v)
    scores = tap("attention_scores", q @ k.swapaxes(-1, -2) / config.root)  # [B, H, S, T]
    mask = masks.allowed
    if masks.bias is not None:
        scores = scores + masks.bias
    if mask is not None:
        # A row of −1e30 has weights of 1/S, and a gradient, where one of minus infinity has NaN.
        filled = -1e30 if config.masked_score is None else config.masked_score
        least = max(filled, float(jnp.finfo(scores.dtype).min))
        scores = jnp.where(mask, scores, -jnp.inf if config.empty_row == "nan" else least)
    weights = jax.nn.softmax(scores, axis=-1)
    if mask is not None and config.empty_row == "zero":
        weights = jnp.where(mask.any(axis=-1, keepdims=True), weights, 0)
    weights = drop("attention_weights", tap("attention_weights", weights))
    return tap("context", weights @ v).swapaxes(1, 2)


def feed_forward(p: Tree, x: Array, activation: Callable[[Array], Array], tap: Tap, drop: Drop) -> Array:
    h = tap("ffn_hidden", linear(p["hidden"], x))  # [B, S, F]
    h = drop("ffn_activation", tap("ffn_activation", activation(h)))
    return tap("ffn_output", linear(p["output"], h))


def linear(p: Tree, x: Array, axes: int = 1) -> Array:
    """The last `axes` axes of x by the first ones of the kernel, and the bias if there is one.

    As a product of two matrices, to which the bias is added: the way back then has a fifth fewer kernels to compile
    than that of an einsum over heads, whose gradients are transposed one by one.
    """
    kernel = p["kernel"]
    into, out_of = kernel.shape[:axes], kernel.shape[axes:]
    rows = x.reshape(-1, math.prod(into)) @ kernel.reshape(math.prod(into), -1)
    if "bias" in p:
        rows = rows + p["bias"].reshape(-1)
    return rows.reshape(*x.shape[:-axes], *out_of)
