"""A complete PyTorch encoder layer, batch first: pre- or post-norm, exact GELU, a mask of 1 for valid, 0 for padding.

Shapes: B batch, S sequence, D d_model, H num_heads, d = D / H, F d_ff.
"""

import math

import torch
from torch import Tensor, nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"d_model = {d_model} is not divisible by num_heads = {num_heads}")
        self.num_heads, self.d_k = num_heads, d_model // num_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """query [B, Sq, D], key and value [B, Sk, D]; mask broadcast to [B, H, Sq, Sk], 0 where nothing may attend."""
        Q, K, V = self.heads(self.W_q(query)), self.heads(self.W_k(key)), self.heads(self.W_v(value))
        scores = Q @ K.transpose(-2, -1) / math.sqrt(self.d_k)  # [B, H, Sq, Sk]
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -torch.inf)
        context = self.dropout(scores.softmax(dim=-1)) @ V  # [B, H, Sq, d]
        return self.W_o(context.transpose(1, 2).reshape(query.shape))

    def heads(self, projected: Tensor) -> Tensor:
        """[B, S, D] to [B, H, S, d]."""
        B, S, _ = projected.shape
        return projected.view(B, S, self.num_heads, self.d_k).transpose(1, 2)


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)
        self.activation = nn.GELU()
        self.dropout = nn.Dropout(dropout)
        self.linear2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(nn.Module):
    """Weights begin as Xavier uniform, biases as 0, the norms' gains as 1."""

    def __init__(
        self, d_model: int = 512, num_heads: int = 8, d_ff: int = 2048, dropout: float = 0.1, pre_norm: bool = True
    ) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.attention = MultiHeadAttention(d_model, num_heads, dropout)
        self.feed_forward = FeedForward(d_model, d_ff, dropout)
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.dropout1 = nn.Dropout(dropout)
        self.dropout2 = nn.Dropout(dropout)
        for name, parameter in self.named_parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x [B, S, D]; mask [B, 1, 1, S] or [B, 1, S, S], 1 for valid and 0 for padding."""
        if self.pre_norm:
            normed = self.norm1(x)
            x = x + self.dropout1(self.attention(normed, normed, normed, mask))
            return x + self.dropout2(self.feed_forward(self.norm2(x)))
        x = self.norm1(x + self.dropout1(self.attention(x, x, x, mask)))
        return self.norm2(x + self.dropout2(self.feed_forward(x)))
