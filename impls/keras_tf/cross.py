"""Attention alone (E-17), over a memory of another length than the queries."""

from typing import Any

from keras import KerasTensor as Tensor
from keras import layers

from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.keras_tf.attention import MultiHeadAttention, Shape


class CrossAttention(layers.Layer):
    def __init__(self, attention: MultiHeadAttention, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.attention = attention

    def build(self, shape: Shape) -> None:
        self.attention.build(shape)

    def call(
        self,
        x: Tensor,
        memory: Tensor,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        tap: Tap[Tensor] = untapped,
    ) -> Tensor:
        """x [B, S, D] and memory [B, T, D]; attention_mask None or bool, broadcast to [B, H, S, T], true where a key
        may be attended to; bias, None or in the dtype of x and broadcast as the mask is, is added to the scores."""
        return tap("output", self.attention(x, attention_mask, bias, tap=tap, memory=memory))
