"""The documented interface of Lucid's nn.TransformerEncoderLayer in PyTorch: post-norm, ReLU, sequence first.

Shapes: N batch, S sequence, E d_model, H nhead, d = E / H.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


class MultiheadAttention(nn.Module):
    """`heads_by_reshape` splits and merges heads by a reshape with no transpose, as release 2.9.0 does."""

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float, heads_by_reshape: bool = False, **made_in: Any
    ) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"d_model = {embed_dim} is not divisible by nhead = {num_heads}")
        self.num_heads, self.dropout, self.heads_by_reshape = num_heads, dropout, heads_by_reshape
        self.q_proj = nn.Linear(embed_dim, embed_dim, **made_in)
        self.k_proj = nn.Linear(embed_dim, embed_dim, **made_in)
        self.v_proj = nn.Linear(embed_dim, embed_dim, **made_in)
        self.out_proj = nn.Linear(embed_dim, embed_dim, **made_in)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """query [N, Sq, E], key and value [N, Sk, E]; attn_mask is added to the scores, broadcast to [N, H, Sq, Sk]."""
        q, k, v = self.split(self.q_proj(query)), self.split(self.k_proj(key)), self.split(self.v_proj(value))
        dropped = self.dropout if self.training else 0.0
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, dropout_p=dropped)  # [N, H, Sq, d]
        if not self.heads_by_reshape:
            context = context.transpose(1, 2)
        return self.out_proj(context.reshape(query.shape))

    def split(self, projected: Tensor) -> Tensor:
        """[N, S, E] to [N, H, S, d]."""
        N, S, E = projected.shape
        if self.heads_by_reshape:
            return projected.reshape(N, self.num_heads, S, E // self.num_heads)
        return projected.reshape(N, S, self.num_heads, E // self.num_heads).transpose(1, 2)


class TransformerEncoderLayer(nn.Module):
    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        batch_first: bool = False,
        norm_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        heads_by_reshape: bool = False,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation is {activation!r}, not one of {', '.join(ACTIVATIONS)}")
        self.activation, self.batch_first, self.norm_first = ACTIVATIONS[activation], batch_first, norm_first
        made_in: dict[str, Any] = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, heads_by_reshape, **made_in)
        self.linear1 = nn.Linear(d_model, dim_feedforward, **made_in)
        self.linear2 = nn.Linear(dim_feedforward, d_model, **made_in)
        self.norm1 = nn.LayerNorm(d_model, **made_in)
        self.norm2 = nn.LayerNorm(d_model, **made_in)
        self.dropout1 = nn.Dropout(dropout)  # after attention
        self.dropout2 = nn.Dropout(dropout)  # inside the feed-forward network, after the activation
        self.dropout3 = nn.Dropout(dropout)  # after the feed-forward network

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """src [S, N, E], or [N, S, E] with batch_first. Masks are true where none may attend, or numbers to be added:
        src_mask broadcast to [N, H, S, S], src_key_padding_mask [N, S]. is_causal masks what comes later as well."""
        x = src if self.batch_first else src.transpose(0, 1)
        mask = joined(x, src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = x + self.attended(self.norm1(x), mask)
            x = x + self.fed_forward(self.norm2(x))
        else:
            x = self.norm1(x + self.attended(x, mask))
            x = self.norm2(x + self.fed_forward(x))
        return x if self.batch_first else x.transpose(0, 1)

    def attended(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.dropout1(self.self_attn(x, x, x, mask))

    def fed_forward(self, x: Tensor) -> Tensor:
        return self.dropout3(self.linear2(self.dropout2(self.activation(self.linear1(x)))))


def joined(x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool) -> Tensor | None:
    """What is added to the scores, broadcast to [N, H, S, S]; None for nothing."""
    N, S, _ = x.shape
    masks = []
    if mask is not None:
        masks.append(added(mask, x.dtype))
    if padding is not None:
        if padding.shape != (N, S):
            raise ValueError(f"src_key_padding_mask is {list(padding.shape)}, and src needs {[N, S]}")
        masks.append(added(padding, x.dtype)[:, None, None])
    if is_causal:
        masks.append(added(torch.ones(S, S, dtype=torch.bool, device=x.device).triu(1), x.dtype))
    return sum(masks[1:], start=masks[0]) if masks else None


def added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -torch.inf)
