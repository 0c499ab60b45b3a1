"""Attention alone, over a memory of another length than the queries."""

from collections.abc import Mapping
from typing import Any

from keras import KerasTensor as Tensor
from keras import layers

from encoder_conformance.impls.keras_tf.encoder import MultiHeadAttention, Shape, Tap, untapped


class CrossAttention(layers.Layer):
    """`attention` holds the choices of MultiHeadAttention."""

    def __init__(self, d_model: int, num_heads: int, *, attention: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.attention = MultiHeadAttention(d_model, num_heads, name="attention", dtype=self.dtype_policy, **attention)

    def build(self, shape: Shape) -> None:
        self.attention.build(shape)

    def call(
        self,
        x: Tensor,
        memory: Tensor,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        tap: Tap = untapped,
    ) -> Tensor:
        """x [B, S, D] and memory [B, T, D]; attention_mask None or bool, broadcast to [B, H, S, T], true where a key
        may be attended to; bias, None or in the dtype of x and broadcast as the mask is, is added to the scores."""
        return tap("output", self.attention(x, attention_mask, bias, tap=tap, memory=memory))
