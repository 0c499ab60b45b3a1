"""Multi-head attention (E-5), of linear maps, a masked softmax and more parts that are passed in, or left out.

Shapes: B batch, S queries, T keys, D d_model, H num_heads, d head_dim, K heads of keys and values (H, or fewer).
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from keras import KerasTensor as Tensor
from keras import backend, layers, ops

from encoder_conformance.impls.bases.choices import refuse_uneven, refuse_unfit
from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.keras_tf.positions import LinearBias, PositionBias, Rotation, Window
from encoder_conformance.impls.keras_tf.softmax import MaskedSoftmax

Shape = tuple[int | None, ...]
"""The shape of x. Each layer builds its parts itself, for Keras would trace the whole call to find their shapes."""


def dropped(dropout: layers.Dropout, x: Tensor, training: bool) -> Tensor:
    """A layer that does nothing is not called: Keras takes 0.2 ms to call any."""
    return dropout(x, training=training) if training and dropout.rate else x


class SharedByHeads(layers.Dense):
    """A d × d map of each head's features (E-12): [B, S, D] to [B, S, D]."""

    def build(self, shape: Shape) -> None:
        super().build((*shape[:-1], self.units))
        self.input_spec = None  # Dense's own asks for d features

    def call(self, x: Tensor) -> Tensor:
        B, S, D = ops.shape(x)
        heads = ops.reshape(x, (B, S, D // self.units, self.units))
        return ops.reshape(super().call(heads), ops.shape(x))


class Appended(layers.Layer):
    """One key, or one value, of each head behind those of the positions (E-44), [K · d]; without a `size` it is 0."""

    def __init__(self, size: int | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.size = size

    def build(self, shape: Any = None) -> None:
        self.vector = None if self.size is None else self.add_weight(shape=(self.size,), name="vector")

    def call(self, heads: Tensor) -> Tensor:
        """[B, T, K, d] to [B, T + 1, K, d]."""
        last = ops.zeros_like(heads[:, :1])
        return ops.concatenate(
            [heads, last if self.vector is None else last + ops.reshape(self.vector, last.shape[2:])], 1
        )


class Maps(NamedTuple):
    """The linear maps of attention. Query, key and value are all Dense or all SharedByHeads."""

    query: layers.Dense
    key: layers.Dense
    value: layers.Dense
    out: layers.Dense


@dataclass(frozen=True)
class Options:
    """What attention does beside the classic one: a norm of queries and one of keys, of each head or `over_all` of them
    (E-27), a rotation (E-22), a bias by position (E-23), a window (E-26), a cap of its scores (E-30), and a key and a
    value that no position has (E-44)."""

    norms: tuple[layers.Layer, layers.Layer] | None = None
    over_all: bool = False
    rotation: Rotation | None = None
    position_bias: PositionBias | LinearBias | None = None
    holds_bias: bool = True
    """Whether the table of the bias is a weight of this attention, and not of another that shares it (E-34)."""
    window: Window | None = None
    softcap: float | None = None
    appended: tuple[Appended, Appended] | None = None
    head_dim: int | None = None
    """None for d_model / num_heads; else E-20."""


PLAIN = Options()


def beside_appended(of_keys: Tensor | None, value: float | bool) -> Tensor | None:
    """A mask or a bias [..., T] with a value for one key behind those of the positions."""
    if of_keys is None:
        return None
    return ops.concatenate([of_keys, ops.full_like(of_keys[..., :1], value)], axis=-1)


class MultiHeadAttention(layers.Layer):
    """softmax(q kᵀ / √scaled_by + bias) v in each of H heads, where scaled_by is d (E-5), D (E-13) or a number."""

    def __init__(
        self,
        maps: Maps,
        num_heads: int,
        scaled_by: float,
        softmax: MaskedSoftmax,
        dropout: layers.Dropout,
        options: Options = PLAIN,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.d_model, self.num_heads, self.scaled_by = maps.out.units, num_heads, scaled_by
        if options.head_dim is None:
            refuse_uneven(self.d_model, num_heads)
        self.head_dim = options.head_dim or self.d_model // num_heads
        self.query, self.key, self.value, self.out = maps
        self.softmax, self.dropout, self.options = softmax, dropout, options
        self.query_norm, self.key_norm = options.norms or (None, None)
        self.position_bias = options.position_bias if options.holds_bias else None
        self.appended_key, self.appended_value = options.appended or (None, None)

    def build(self, shape: Shape) -> None:
        for linear in (self.query, self.key, self.value):
            linear.build(shape)
        self.out.build((*shape[:-1], self.num_heads * self.head_dim))
        for norm, linear in ((self.query_norm, self.query), (self.key_norm, self.key)):
            if norm is not None:
                norm.build((*shape[:-1], linear.units if self.options.over_all else self.head_dim))
        if self.position_bias is not None:
            self.position_bias.build()
        for appended in self.options.appended or ():
            appended.build()

    def call(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        tap: Tap[Tensor] = untapped,
        training: bool = False,
        memory: Tensor | None = None,
    ) -> Tensor:
        """[B, S, D]. `attention_mask` is true where a key may be attended to, and `bias` is added to the scores (M-7).
        Keys and values are made of `memory` [B, T, D] where it is given (E-17), and else of x. x may be x
        and where it lies, [B or 1, S], if not at 0 … S − 1."""
        x, positions = x if isinstance(x, tuple) else (x, None)
        keys = x if memory is None else memory
        q = tap("query", self.query(x))  # [B, S, H · d]
        k = tap("key", self.key(keys))  # [B, T, K · d]
        v = tap("value", self.value(keys))
        q = self.by_heads("query", q, self.query_norm, positions, tap)  # [B, S, H, d]
        k = self.by_heads("key", k, self.key_norm, positions, tap)  # [B, T, K, d]
        v = self.by_heads("value", v, None, None, tap)
        if self.options.appended is not None:
            k, v = self.appended_key(k), self.appended_value(v)
            attention_mask, bias = beside_appended(attention_mask, True), beside_appended(bias, 0.0)
        if (times := self.num_heads // k.shape[2]) > 1:  # E-28
            k, v = (ops.repeat(each, times, axis=2) for each in (k, v))
        if self.options.window is not None:
            attention_mask = self.options.window.joined(attention_mask, x)
        own = None if self.options.position_bias is None else self.options.position_bias(q, k)
        is_fused = self.softmax.is_fused and self.options.softcap is None
        if tap is untapped and is_fused and not (training and self.dropout.rate):
            # The scale is a tensor because a Python float, and the default too, goes through float32 on its way.
            scale = ops.convert_to_tensor(1 / math.sqrt(self.scaled_by), dtype=q.dtype)
            added = bias if own is None else own if bias is None else own + bias
            context = ops.dot_product_attention(q, k, v, bias=added, mask=attention_mask, scale=scale)
        else:
            context = self.written_out((q, k, v), attention_mask, own, bias, tap, training)
        merged = ops.reshape(context, (*ops.shape(x)[:2], self.num_heads * self.head_dim))
        return tap("attention_output", self.out(tap("context_merged", merged)))

    def by_heads(
        self, name: str, x: Tensor, norm: layers.Layer | None, positions: Tensor | None, tap: Tap[Tensor]
    ) -> Tensor:
        """[B, S, H · d] or [B, S, K · d] to [B, S, H, d], normed and turned as the layer does with `name`."""

        def seen(name: str, heads: Tensor) -> Tensor:
            """Shown as [B, H, S, d]."""
            return heads if tap is untapped else ops.swapaxes(tap(name, ops.swapaxes(heads, 1, 2)), 1, 2)

        if norm is not None and self.options.over_all:
            x = tap(f"{name}_norm", norm(x))
        heads = seen(f"{name}_heads", ops.reshape(x, (*ops.shape(x)[:2], x.shape[-1] // self.head_dim, self.head_dim)))
        if norm is not None and not self.options.over_all:
            heads = seen(f"{name}_heads_norm", norm(heads))
        if self.options.rotation is not None and name != "value":
            heads = seen(f"{name}_rotated", self.options.rotation(heads, positions))
        return heads

    def written_out(
        self,
        heads: tuple[Tensor, ...],
        mask: Tensor | None,
        own_bias: Tensor | None,
        bias: Tensor | None,
        tap: Tap[Tensor],
        training: bool,
    ) -> Tensor:
        """Compute ops.dot_product_attention step by step, to show its stages. [B, S, H, d] in and out."""
        q, k, v = (ops.swapaxes(head, 1, 2) for head in heads)  # [B, H, S, d]
        scores = q @ ops.swapaxes(k, 2, 3) / math.sqrt(self.scaled_by)  # [B, H, S, T]
        scores = tap("attention_scores", scores)
        if own_bias is not None:
            scores = tap("position_biased", scores + own_bias)
        if (cap := self.options.softcap) is not None:
            scores = tap("capped", cap * ops.tanh(scores / cap))
        if bias is not None:
            scores = scores + bias
        weights = dropped(self.dropout, tap("attention_weights", self.softmax(scores, mask)), training)
        return ops.swapaxes(tap("context", weights @ v), 1, 2)

    def check_fit(self, x: Tensor, mask: Tensor | None) -> None:
        """Refuse what Keras would cast to its own dtype, or TensorFlow refuse in the words of a kernel (X-1)."""
        if (dtype := backend.standardize_dtype(x.dtype)) != self.compute_dtype:
            raise TypeError(f"x is {dtype}, and the layer is {self.compute_dtype}")
        refuse_unfit(x.shape, None if mask is None else mask.shape, self.d_model, self.num_heads)
