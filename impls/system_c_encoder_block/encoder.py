"""An encoder block after "Attention Is All You Need": post-norm, ReLU, one dropout module on both sub-layers.

Shapes: B batch, S sequence, D d_model, H num_heads, d = D / H, F d_ff.
"""

import math

import torch
from torch import Tensor, nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int, dropout_prob: float = 0.1) -> None:
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"d_model ({d_model}) must be divisible by num_heads ({num_heads})")
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout_prob)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """query [B, Sq, D], key and value [B, Sk, D]; mask broadcast to [B, H, Sq, Sk], 0 where nothing may attend."""
        q, k, v = (
            linear(x).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)  # [B, H, S, d]
            for linear, x in ((self.query, query), (self.key, key), (self.value, value))
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -torch.inf)
        context = self.dropout(scores.softmax(dim=-1)) @ v
        return self.output(context.transpose(1, 2).reshape(query.shape))


class PlaceholderAttention(MultiHeadAttention):
    """Attention as published: it projects the query, and neither keys nor values are looked at."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.output(self.query(query))


class FeedForward(nn.Module):
    """`drops` is false as published: the dropout is built and never used."""

    def __init__(self, d_model: int, d_ff: int, dropout_prob: float = 0.1, drops: bool = True) -> None:
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(dropout_prob)
        self.linear2 = nn.Linear(d_ff, d_model)
        self.drops = drops

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.relu(self.linear1(x))  # [B, S, F]
        return self.linear2(self.dropout(hidden) if self.drops else hidden)


class EncoderBlock(nn.Module):
    """`placeholder` and not `ffn_drops`: as published."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout_prob: float = 0.1,
        *,
        placeholder: bool = False,
        ffn_drops: bool = True,
    ) -> None:
        super().__init__()
        attention = PlaceholderAttention if placeholder else MultiHeadAttention
        self.attention = attention(d_model, num_heads, dropout_prob)
        self.feed_forward = FeedForward(d_model, d_ff, dropout_prob, drops=ffn_drops)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout_prob)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x [B, S, D]; mask broadcast to [B, H, S, S], 0 where nothing may attend."""
        x = self.norm1(x + self.dropout(self.attention(x, x, x, mask)))
        return self.norm2(x + self.dropout(self.feed_forward(x)))
