"""A complete encoder: token ids in, sinusoidal positions, dropout, N pre-norm layers, a final norm, encoder memory out.

Shapes: B batch, S sequence, D d_model, H num_heads, d_k = D / H, F d_ff.
"""

import math

import torch
from torch import Tensor, nn


class SinusoidalPositions(nn.Module):
    """Sines and cosines by turns, for as many positions as there are; computed in float64 and kept in x's format."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    def forward(self, x: Tensor) -> Tensor:
        """x [B, S, D] and the positions [1, S, D] of it."""
        position = torch.arange(x.shape[1], dtype=torch.float64, device=x.device)[:, None]
        feature = torch.arange(0, self.d_model, 2, dtype=torch.float64, device=x.device)
        angle = position * torch.exp(-feature * math.log(10000.0) / self.d_model)  # [S, D / 2]
        table = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[None, :, : self.d_model]
        return x + table.to(x.dtype)


class SelfAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"d_model = {d_model} is not divisible by num_heads = {num_heads}")
        self.num_heads, self.d_k = num_heads, d_model // num_heads
        self.q_proj = nn.Linear(d_model, d_model)
        self.k_proj = nn.Linear(d_model, d_model)
        self.v_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """query [B, Sq, D], key and value [B, Sk, D]; mask broadcast to [B, H, Sq, Sk], true where a key is to be
        ignored."""
        Q, K, V = (
            linear(x).unflatten(-1, (self.num_heads, self.d_k)).transpose(1, 2)  # [B, H, S, d_k]
            for linear, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        )
        scores = Q @ K.transpose(-2, -1) / math.sqrt(self.d_k)  # [B, H, Sq, Sk]
        if mask is not None:
            scores = scores.masked_fill(mask, -torch.inf)
        context = self.dropout(scores.softmax(dim=-1)) @ V  # [B, H, Sq, d_k]
        return self.out_proj(context.transpose(1, 2).reshape(query.shape))


class EncoderLayer(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(d_model)
        self.self_attn = SelfAttention(d_model, num_heads, dropout)
        self.norm2 = nn.LayerNorm(d_model)
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)
        self.activation = nn.GELU()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        normed = self.norm1(x)
        x = x + self.dropout(self.self_attn(normed, normed, normed, mask))
        hidden = self.dropout(self.activation(self.linear1(self.norm2(x))))  # [B, S, F]
        return x + self.dropout(self.linear2(hidden))


class TransformerEncoder(nn.Module):
    def __init__(
        self,
        vocab_size: int,
        d_model: int = 512,
        num_heads: int = 8,
        d_ff: int = 2048,
        num_layers: int = 6,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = SinusoidalPositions(d_model)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers))
        self.final_norm = nn.LayerNorm(d_model)

    def forward(self, ids: Tensor, key_padding_mask: Tensor | None = None, padding_id: int | None = None) -> Tensor:
        """ids [B, S]; key_padding_mask [B, S], true where a position is padding, or made of the positions that have
        `padding_id`. The encoder memory, [B, S, D]."""
        if padding_id is not None:
            key_padding_mask = ids == padding_id
        mask = None if key_padding_mask is None else key_padding_mask[:, None, None]  # [B, 1, 1, S]
        x = self.dropout(self.positions(self.embedding(ids)))
        for layer in self.layers:
            x = layer(x, mask)
        return self.final_norm(x)
