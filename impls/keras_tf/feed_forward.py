"""The feed-forward network (E-8), of linear maps that are passed in, and its activations."""

import math
from collections.abc import Callable
from typing import Any

from keras import KerasTensor as Tensor
from keras import layers, ops

from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.keras_tf.attention import Shape, dropped


def gelu(x: Tensor) -> Tensor:
    # By hand because keras.activations.gelu rounds √2 to float32 on TensorFlow, which costs float64 half its digits.
    return 0.5 * x * (1 + ops.erf(x / math.sqrt(2)))


def gelu_tanh(x: Tensor) -> Tensor:
    # By hand because ops.gelu rounds √(2/π) to float32 on TensorFlow.
    return 0.5 * x * (1 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": ops.relu,  # E-6
    "gelu": gelu,  # E-7
    "gelu_tanh": gelu_tanh,  # E-10
    "silu": ops.silu,  # E-11
    "quick_gelu": lambda x: x * ops.sigmoid(1.702 * x),  # E-18
}


class FeedForward(layers.Layer):
    """out(activation(hidden(x))); with a gate out(activation(gate(x)) · hidden(x)) (E-19)."""

    def __init__(
        self,
        hidden: layers.Dense,
        activation: str,
        out: layers.Dense,
        dropout: layers.Dropout,
        gate: layers.Dense | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.gate = gate
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation = {activation!r}, not one of {', '.join(ACTIVATIONS)}")
        self.hidden, self.activation, self.out, self.dropout = hidden, ACTIVATIONS[activation], out, dropout

    def build(self, shape: Shape) -> None:
        self.hidden.build(shape)
        if self.gate is not None:
            self.gate.build(shape)
        self.out.build((*shape[:-1], self.hidden.units))

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        tap: Tap[Tensor] = untapped,
        training: bool = False,
    ) -> Tensor:
        """[B, S, D]. It computes each position by itself, and looks at no mask."""
        if self.gate is None:
            h = tap("ffn_activation", self.activation(tap("ffn_hidden", self.hidden(x))))  # [B, S, F]
        else:
            h = tap("ffn_activation", self.activation(tap("ffn_gate", self.gate(x))))
            h = tap("ffn_gated", h * tap("ffn_hidden", self.hidden(x)))
        return tap("ffn_output", self.out(dropped(self.dropout, h, training)))
