"""The feed-forward network (E-8), of linear maps that are passed in, and its activations."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.pytorch.attention import Masks

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,  # E-6
    "gelu": F.gelu,  # E-7, the exact one, by erf
    "gelu_tanh": partial(F.gelu, approximate="tanh"),  # E-10
    "silu": F.silu,  # E-11
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),  # E-18
}


class FeedForward(nn.Module):
    """output(activation(hidden(x))); with a gate output(activation(gate(x)) · hidden(x)) (E-19)."""

    def __init__(
        self,
        hidden: nn.Linear,
        activation: str,
        output: nn.Linear,
        dropout: nn.Dropout,
        gate: nn.Linear | None = None,
    ) -> None:
        super().__init__()
        self.gate = gate
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation = {activation!r}, not one of {', '.join(ACTIVATIONS)}")
        self.hidden, self.activation, self.dropout, self.output = hidden, ACTIVATIONS[activation], dropout, output

    def forward(self, x: Tensor, masks: Masks, tap: Tap[Tensor] = untapped) -> Tensor:
        """[B, S, D]. It computes each position by itself, and looks at no mask."""
        if self.gate is None:
            h = tap("ffn_activation", self.activation(tap("ffn_hidden", self.hidden(x))))  # [B, S, F]
        else:
            h = tap("ffn_activation", self.activation(tap("ffn_gate", self.gate(x))))
            h = tap("ffn_gated", h * tap("ffn_hidden", self.hidden(x)))
        return tap("ffn_output", self.output(self.dropout(h)))
