"""Attention alone (E-17), over a memory of another length than the queries."""

from torch import Tensor, nn

from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.pytorch.attention import Masks, MultiHeadAttention
from encoder_conformance.impls.pytorch.encoder import initialise


class CrossAttention(nn.Module):
    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__()
        self.attention = attention
        self.apply(initialise)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        tap: Tap[Tensor] = untapped,
    ) -> Tensor:
        """x [B, S, D] and memory [B, T, D]; mask None or bool, broadcast to [B, H, S, T], true where a key may be
        attended to; bias, None or in the dtype of x and broadcast as the mask is, is added to the scores."""
        return tap("output", self.attention(x, Masks(mask, bias), tap, memory))
