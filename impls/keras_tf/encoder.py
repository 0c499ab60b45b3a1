"""A Transformer encoder layer, batch first, as Keras layers.

Shapes: B batch, S sequence, D d_model, H num_heads, d = D / H, F d_ff.
"""

import math
from collections.abc import Callable
from typing import Any

from keras import KerasTensor as Tensor
from keras import layers, ops

Tap = Callable[[str, Tensor], Tensor]
"""Is shown every stage by name, in the order in which they are computed, and hands each one on."""


def gelu(x: Tensor) -> Tensor:
    # By hand because keras.activations.gelu rounds √2 to float32 on TensorFlow, which costs float64 half its digits.
    return 0.5 * x * (1 + ops.erf(x / math.sqrt(2)))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": ops.relu, "gelu": gelu}


def untapped(name: str, stage: Tensor) -> Tensor:
    return stage


class MultiHeadAttention(layers.Layer):
    """softmax(q kᵀ / √d) v in each of H heads. `attention_mask` is true where a key may be attended to."""

    def __init__(self, d_model: int, num_heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if d_model % num_heads:
            raise ValueError(f"d_model = {d_model} is not divisible by num_heads = {num_heads}")
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.query = layers.Dense(d_model, name="query", dtype=self.dtype_policy)
        self.key = layers.Dense(d_model, name="key", dtype=self.dtype_policy)
        self.value = layers.Dense(d_model, name="value", dtype=self.dtype_policy)
        self.out = layers.Dense(d_model, name="out", dtype=self.dtype_policy)

    def call(self, x: Tensor, attention_mask: Tensor | None = None, tap: Tap = untapped) -> Tensor:
        q = tap("query", self.query(x))  # [B, S, D]
        k = tap("key", self.key(x))
        v = tap("value", self.value(x))
        q, k, v = self.split(q), self.split(k), self.split(v)  # [B, S, H, d]
        if tap is untapped:
            # The scale is a tensor because a Python float, and the default too, goes through float32 on its way.
            scale = ops.convert_to_tensor(1 / math.sqrt(self.head_dim), dtype=q.dtype)
            context = ops.dot_product_attention(q, k, v, mask=attention_mask, scale=scale)
        else:
            context = written_out_attention(q, k, v, attention_mask, tap)
        merged = tap("context_merged", ops.reshape(context, ops.shape(x)))
        return tap("attention_output", self.out(merged))

    def split(self, x: Tensor) -> Tensor:
        """[B, S, D] to [B, S, H, d]."""
        B, S, _ = ops.shape(x)
        return ops.reshape(x, (B, S, self.num_heads, self.head_dim))


def written_out_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, tap: Tap) -> Tensor:
    """What ops.dot_product_attention computes, step by step, to show its stages. [B, S, H, d] in and out."""
    q = tap("query_heads", ops.swapaxes(q, 1, 2))  # [B, H, S, d]
    k = tap("key_heads", ops.swapaxes(k, 1, 2))
    v = tap("value_heads", ops.swapaxes(v, 1, 2))
    scores = q @ ops.swapaxes(k, 2, 3) / math.sqrt(q.shape[-1])  # [B, H, S, S]
    scores = tap("attention_scores", scores)
    if mask is not None:
        # -1e30 and not -inf: the weights are the same, and an item that is all padding gives no NaN.
        scores = ops.where(mask, scores, -1e30)
    weights = tap("attention_weights", ops.softmax(scores, axis=-1))
    return ops.swapaxes(tap("context", weights @ v), 1, 2)


class FeedForward(layers.Layer):
    def __init__(self, d_model: int, d_ff: int, activation: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation = {activation!r}, not one of {', '.join(ACTIVATIONS)}")
        self.hidden = layers.Dense(d_ff, name="hidden", dtype=self.dtype_policy)
        self.activation = ACTIVATIONS[activation]
        self.out = layers.Dense(d_model, name="out", dtype=self.dtype_policy)

    def call(self, x: Tensor, tap: Tap = untapped) -> Tensor:
        h = tap("ffn_hidden", self.hidden(x))  # [B, S, F]
        h = tap("ffn_activation", self.activation(h))
        return tap("ffn_output", self.out(h))


class EncoderLayer(layers.Layer):
    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        *,
        activation: str,
        placement: str,
        epsilon: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if placement not in ("pre", "post"):
            raise ValueError(f"placement = {placement!r}, not one of pre, post")
        self.placement = placement
        self.norm1 = layers.LayerNormalization(epsilon=epsilon, name="norm1", dtype=self.dtype_policy)
        self.attention = MultiHeadAttention(d_model, num_heads, name="attention", dtype=self.dtype_policy)
        self.norm2 = layers.LayerNormalization(epsilon=epsilon, name="norm2", dtype=self.dtype_policy)
        self.feed_forward = FeedForward(d_model, d_ff, activation, name="feed_forward", dtype=self.dtype_policy)

    def call(self, x: Tensor, attention_mask: Tensor | None = None, tap: Tap = untapped) -> Tensor:
        """x [B, S, D]; attention_mask None or bool, broadcast to [B, H, S, S], true where a key may be attended to."""
        if self.placement == "pre":
            x = tap("residual1", x + self.attention(tap("norm1", self.norm1(x)), attention_mask, tap=tap))
            x = tap("residual2", x + self.feed_forward(tap("norm2", self.norm2(x)), tap=tap))
        else:
            x = tap("norm1", self.norm1(tap("residual1", x + self.attention(x, attention_mask, tap=tap))))
            x = tap("norm2", self.norm2(tap("residual2", x + self.feed_forward(x, tap=tap))))
        return tap("output", x)
