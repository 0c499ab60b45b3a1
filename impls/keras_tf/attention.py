"""Multi-head attention (E-5), of linear maps and a masked softmax that are passed in.

Shapes: B batch, S queries, T keys, D d_model, H num_heads, d = D / H.
"""

import math
from typing import Any, NamedTuple

from keras import KerasTensor as Tensor
from keras import backend, layers, ops

from encoder_conformance.impls.bases.tap import Tap, untapped
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


class Maps(NamedTuple):
    """The linear maps of attention. Query, key and value are all Dense or all SharedByHeads."""

    query: layers.Dense
    key: layers.Dense
    value: layers.Dense
    out: layers.Dense


class MultiHeadAttention(layers.Layer):
    """softmax(q kᵀ / √scaled_by + bias) v in each of H heads, where scaled_by is d (E-5) or D (E-13)."""

    def __init__(
        self,
        maps: Maps,
        num_heads: int,
        scaled_by: int,
        softmax: MaskedSoftmax,
        dropout: layers.Dropout,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.d_model, self.num_heads, self.scaled_by = maps.out.units, num_heads, scaled_by
        if self.d_model % num_heads:
            raise ValueError(f"d_model = {self.d_model} is not divisible by num_heads = {num_heads}")
        self.query, self.key, self.value, self.out = maps
        self.softmax, self.dropout = softmax, dropout

    def build(self, shape: Shape) -> None:
        for linear in (self.query, self.key, self.value, self.out):
            linear.build(shape)

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        tap: Tap[Tensor] = untapped,
        training: bool = False,
        memory: Tensor | None = None,
    ) -> Tensor:
        """[B, S, D]. `attention_mask` is true where a key may be attended to, and `bias` is added to the scores (M-7).
        Keys and values are made of `memory` [B, T, D] where it is given (E-17), and else of x."""
        keys = x if memory is None else memory
        q = tap("query", self.query(x))  # [B, S, D]
        k = tap("key", self.key(keys))
        v = tap("value", self.value(keys))
        q, k, v = self.split(q), self.split(k), self.split(v)  # [B, S, H, d]
        if tap is untapped and self.softmax.is_fused and not (training and self.dropout.rate):
            # The scale is a tensor because a Python float, and the default too, goes through float32 on its way.
            scale = ops.convert_to_tensor(1 / math.sqrt(self.scaled_by), dtype=q.dtype)
            context = ops.dot_product_attention(q, k, v, bias=bias, mask=attention_mask, scale=scale)
        else:
            context = self.written_out((q, k, v), attention_mask, bias, tap, training)
        merged = tap("context_merged", ops.reshape(context, ops.shape(x)))
        return tap("attention_output", self.out(merged))

    def split(self, x: Tensor) -> Tensor:
        """[B, S, D] to [B, S, H, d]."""
        B, S, _ = ops.shape(x)
        return ops.reshape(x, (B, S, self.num_heads, self.d_model // self.num_heads))

    def written_out(
        self, heads: tuple[Tensor, ...], mask: Tensor | None, bias: Tensor | None, tap: Tap[Tensor], training: bool
    ) -> Tensor:
        """Compute ops.dot_product_attention step by step, to show its stages. [B, S, H, d] in and out."""
        q, k, v = (ops.swapaxes(head, 1, 2) for head in heads)  # [B, H, S, d]
        q, k, v = tap("query_heads", q), tap("key_heads", k), tap("value_heads", v)
        scores = q @ ops.swapaxes(k, 2, 3) / math.sqrt(self.scaled_by)  # [B, H, S, T]
        scores = tap("attention_scores", scores)
        if bias is not None:
            scores = scores + bias
        weights = dropped(self.dropout, tap("attention_weights", self.softmax(scores, mask)), training)
        return ops.swapaxes(tap("context", weights @ v), 1, 2)

    def check_fit(self, x: Tensor, mask: Tensor | None) -> None:
        """Refuse what Keras would cast to its own dtype, or TensorFlow refuse in the words of a kernel (X-1)."""
        if (dtype := backend.standardize_dtype(x.dtype)) != self.compute_dtype:
            raise TypeError(f"x is {dtype}, and the layer is {self.compute_dtype}")
        if len(x.shape) != 3 or x.shape[-1] != self.d_model:
            raise ValueError(f"x is {list(x.shape)}, and the layer takes [batch, sequence, {self.d_model}]")
        B, S, _ = x.shape
        due = (B, self.num_heads, S, S)
        if mask is not None and not all(size in (n, 1) for size, n in zip(mask.shape[::-1], due[::-1], strict=False)):
            raise ValueError(f"the mask is {list(mask.shape)}, which does not broadcast to {list(due)}")
