"""A Transformer encoder layer, batch first, as Keras layers.

Shapes: B batch, S sequence, D d_model, H num_heads, d = D / H, F d_ff.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
from keras import KerasTensor as Tensor
from keras import backend, layers, ops

Shape = tuple[int | None, ...]
"""The shape of x. Each layer builds its parts itself, for Keras would trace the whole call to find their shapes."""
Tap = Callable[[str, Tensor], Tensor]
"""Is shown every stage by name, in the order in which they are computed, and hands each one on."""


def gelu(x: Tensor) -> Tensor:
    # By hand because keras.activations.gelu rounds √2 to float32 on TensorFlow, which costs float64 half its digits.
    return 0.5 * x * (1 + ops.erf(x / math.sqrt(2)))


def gelu_tanh(x: Tensor) -> Tensor:
    # By hand because ops.gelu rounds √(2/π) to float32 on TensorFlow.
    return 0.5 * x * (1 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": ops.relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": ops.silu,
}
NORMS = {"layer_norm": layers.LayerNormalization, "rms_norm": layers.RMSNormalization}
CHOICES: dict[str, Collection[str]] = {
    "activation": ACTIVATIONS,
    "placement": ("pre", "post"),
    "norm": NORMS,
    "empty_row": ("zero", "uniform", "nan"),
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
    """The sizes and choices of a layer."""

    d_model: int
    num_heads: int
    d_ff: int
    activation: str = "gelu"
    placement: str = "pre"
    epsilon: float = 1e-5
    norm: str = "layer_norm"
    ffn_bias: bool = True
    qkv_bias: bool = True
    output_bias: bool = True
    shared: bool = False
    """Whether query, key and value are one d × d map each, which the heads share."""
    scale_by_d_model: bool = False
    masked_score: float | None = None
    """The score of a masked key; minus infinity if it is None."""
    empty_row: str = "uniform"
    """The weights of a query with no key to attend to: zero, uniform (1/S) or nan."""
    dropout: Dropout = NO_DROPOUT

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads

    def __post_init__(self) -> None:
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model = {self.d_model} is not divisible by num_heads = {self.num_heads}")
        for choice, known in CHOICES.items():
            check(choice, getattr(self, choice), known)


def check(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ValueError(f"{what} = {name!r}, not one of {', '.join(known)}")


def untapped(name: str, stage: Tensor) -> Tensor:
    return stage


def dropped(dropout: layers.Dropout, x: Tensor, training: bool) -> Tensor:
    """A layer that does nothing is not called: Keras takes 0.2 ms to call any."""
    return dropout(x, training=training) if training and dropout.rate else x


def check_fit(x: Tensor, mask: Tensor | None, num_heads: int, d_model: int, dtype: str) -> None:
    """Refuse what Keras would cast to its own dtype, or TensorFlow refuse in the words of a kernel."""
    if backend.standardize_dtype(x.dtype) != dtype:
        raise TypeError(f"x is {backend.standardize_dtype(x.dtype)}, and the layer is {dtype}")
    if len(x.shape) != 3 or x.shape[-1] != d_model:
        raise ValueError(f"x is {list(x.shape)}, and the layer takes [batch, sequence, {d_model}]")
    B, S, _ = x.shape
    due = (B, num_heads, S, S)
    if mask is not None and not all(size in (n, 1) for size, n in zip(mask.shape[::-1], due[::-1], strict=False)):
        raise ValueError(f"the mask is {list(mask.shape)}, which does not broadcast to {list(due)}")


class MultiHeadAttention(layers.Layer):
    """softmax(q kᵀ / √d + bias) v in each of H heads. `attention_mask` is true where a key may be attended to."""

    def __init__(self, config: Config, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads, self.head_dim, self.shared = config.num_heads, config.head_dim, config.shared
        self.scaled_by = config.d_model if config.scale_by_d_model else config.head_dim
        self.masked_score, self.empty_row = config.masked_score, config.empty_row
        size, biased = config.head_dim if config.shared else config.d_model, config.qkv_bias
        self.query = layers.Dense(size, use_bias=biased, name="query", dtype=self.dtype_policy)
        self.key = layers.Dense(size, use_bias=biased, name="key", dtype=self.dtype_policy)
        self.value = layers.Dense(size, use_bias=biased, name="value", dtype=self.dtype_policy)
        self.out = layers.Dense(config.d_model, use_bias=config.output_bias, name="out", dtype=self.dtype_policy)
        self.dropout = layers.Dropout(config.dropout.attention_weights, name="dropout", dtype=self.dtype_policy)

    def build(self, shape: Shape) -> None:
        d_model = shape[-1]
        for linear in (self.query, self.key, self.value):
            linear.build((*shape[:-1], self.head_dim if self.shared else d_model))
        self.out.build(shape)

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        tap: Tap = untapped,
        training: bool = False,
        memory: Tensor | None = None,
    ) -> Tensor:
        """Keys and values are made of `memory` [B, T, D] where it is given, and else of x."""
        keys = x if memory is None else memory
        q = tap("query", self.project(self.query, x))  # [B, S, D]
        k = tap("key", self.project(self.key, keys))
        v = tap("value", self.project(self.value, keys))
        q, k, v = self.split(q), self.split(k), self.split(v)  # [B, S, H, d]
        # ops.dot_product_attention gives a query with no key uniform weights; what else is asked of it is written out.
        fused = self.empty_row == "uniform" and self.masked_score is None and not (training and self.dropout.rate)
        if tap is untapped and fused:
            # The scale is a tensor because a Python float, and the default too, goes through float32 on its way.
            scale = ops.convert_to_tensor(1 / math.sqrt(self.scaled_by), dtype=q.dtype)
            context = ops.dot_product_attention(q, k, v, bias=bias, mask=attention_mask, scale=scale)
        else:
            context = self.written_out((q, k, v), attention_mask, bias, tap, training)
        merged = tap("context_merged", ops.reshape(context, ops.shape(x)))
        return tap("attention_output", self.out(merged))

    def needed(self, valid: Tensor, mask: Tensor) -> Tensor:
        """[B, S], false at padding that nothing is to be computed with: a weight of 0 keeps out neither what overflows
        nor NaN. Uniform weights over every key are no 0: an item with a query that has no key keeps its padding."""
        if self.empty_row != "uniform":
            return valid
        return ops.logical_or(valid, ~ops.expand_dims(ops.all(ops.any(mask, axis=-1), axis=(1, 2)), -1))

    def project(self, dense: layers.Dense, x: Tensor) -> Tensor:
        return ops.reshape(dense(self.split(x)), ops.shape(x)) if self.shared else dense(x)

    def split(self, x: Tensor) -> Tensor:
        """[B, S, D] to [B, S, H, d]."""
        B, S, _ = ops.shape(x)
        return ops.reshape(x, (B, S, self.num_heads, self.head_dim))

    def written_out(
        self, heads: tuple[Tensor, ...], mask: Tensor | None, bias: Tensor | None, tap: Tap, training: bool
    ) -> Tensor:
        """Compute ops.dot_product_attention step by step, to show its stages. [B, S, H, d] in and out."""
        q, k, v = (ops.swapaxes(head, 1, 2) for head in heads)  # [B, H, S, d]
        q, k, v = tap("query_heads", q), tap("key_heads", k), tap("value_heads", v)
        scores = q @ ops.swapaxes(k, 2, 3) / math.sqrt(self.scaled_by)  # [B, H, S, S]
        scores = tap("attention_scores", scores)
        if bias is not None:
            scores = scores + bias
        if mask is not None:
            scores = ops.where(mask, scores, self.fill())
        weights = ops.softmax(scores, axis=-1)
        if mask is not None and self.empty_row == "zero":
            weights = ops.where(ops.any(mask, axis=-1, keepdims=True), weights, 0.0)
        weights = dropped(self.dropout, tap("attention_weights", weights), training)
        return ops.swapaxes(tap("context", weights @ v), 1, 2)

    def fill(self) -> float:
        # A row of −1e30 has weights of 1/S, and a gradient, where one of minus infinity has NaN.
        if self.empty_row == "nan":
            return -math.inf
        filled = -1e30 if self.masked_score is None else self.masked_score
        return max(filled, float(ml_dtypes.finfo(self.compute_dtype).min))


class FeedForward(layers.Layer):
    def __init__(self, config: Config, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        biased, policy = config.ffn_bias, self.dtype_policy
        self.hidden = layers.Dense(config.d_ff, use_bias=biased, name="hidden", dtype=policy)
        self.activation = ACTIVATIONS[config.activation]
        self.out = layers.Dense(config.d_model, use_bias=biased, name="out", dtype=policy)
        self.dropout = layers.Dropout(config.dropout.ffn_activation, name="dropout", dtype=policy)

    def build(self, shape: Shape) -> None:
        self.hidden.build(shape)
        self.out.build((*shape[:-1], self.hidden.units))

    def call(self, x: Tensor, tap: Tap = untapped, training: bool = False) -> Tensor:
        h = tap("ffn_hidden", self.hidden(x))  # [B, S, F]
        h = tap("ffn_activation", self.activation(h))
        return tap("ffn_output", self.out(dropped(self.dropout, h, training)))


class EncoderLayer(layers.Layer):
    """Keras begins with Xavier uniform kernels, biases and shifts of 0, gains of 1."""

    def __init__(self, config: Config, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # else x would be cast before anyone saw its dtype
        norm, rates, policy = NORMS[config.norm], config.dropout, self.dtype_policy
        self.placement, self.d_model = config.placement, config.d_model
        self.norm1 = norm(epsilon=config.epsilon, name="norm1", dtype=policy)
        self.attention = MultiHeadAttention(config, name="attention", dtype=policy)
        self.norm2 = norm(epsilon=config.epsilon, name="norm2", dtype=policy)
        self.feed_forward = FeedForward(config, name="feed_forward", dtype=policy)
        self.dropout1 = layers.Dropout(rates.attention_output, name="dropout1", dtype=policy)
        self.dropout2 = layers.Dropout(rates.ffn_output, name="dropout2", dtype=policy)

    def build(self, shape: Shape) -> None:
        for part in (self.norm1, self.attention, self.norm2, self.feed_forward):
            part.build((*shape[:-1], self.d_model))

    def reseed(self, seed: int) -> None:
        """Draw the next pass's dropout from `seed`: each placement from a stream of its own."""
        placements = self.attention.dropout, self.dropout1, self.feed_forward.dropout, self.dropout2
        for at, placement in enumerate(placements):
            if placement.rate:
                placement.seed_generator.state.assign([len(placements) * seed + at, 0])

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        valid: Tensor | None = None,
        tap: Tap = untapped,
        training: bool = False,
    ) -> Tensor:
        """x [B, S, D]; attention_mask None or bool, broadcast to [B, H, S, S], true where a key may be attended to;
        bias, None or in the dtype of x and broadcast as the mask is, is added to the scores; valid, None or bool
        [B, S], is true where x holds data and not padding."""
        check_fit(x, attention_mask, self.attention.num_heads, self.d_model, self.compute_dtype)
        if valid is not None and attention_mask is not None:
            x = ops.where(ops.expand_dims(self.attention.needed(valid, attention_mask), -1), x, 0.0)

        def attend(x: Tensor) -> Tensor:
            attended = self.attention(x, attention_mask, bias, tap=tap, training=training)
            return dropped(self.dropout1, attended, training)

        def feed(x: Tensor) -> Tensor:
            return dropped(self.dropout2, self.feed_forward(x, tap=tap, training=training), training)

        if self.placement == "pre":
            x = tap("residual1", x + attend(tap("norm1", self.norm1(x))))
            x = tap("residual2", x + feed(tap("norm2", self.norm2(x))))
        else:
            x = tap("norm1", self.norm1(tap("residual1", x + attend(x))))
            x = tap("norm2", self.norm2(tap("residual2", x + feed(x))))
        return tap("output", x)
