"""An encoder stack whose heads share one projection each for values, keys and queries; pre-norm, GELU.

Shapes: N batch, S sequence, E embed_size, H heads, d = E / H.
"""

import math

from torch import Tensor, nn


class SelfAttention(nn.Module):
    """`projects` is false as published: the three projections are declared and never applied."""

    def __init__(self, embed_size: int, heads: int, projects: bool = True) -> None:
        super().__init__()
        if embed_size % heads:
            raise ValueError(f"embed_size = {embed_size} is not divisible by heads = {heads}")
        self.embed_size, self.heads, self.head_dim, self.projects = embed_size, heads, embed_size // heads, projects
        self.values = nn.Linear(self.head_dim, self.head_dim, bias=False)
        self.keys = nn.Linear(self.head_dim, self.head_dim, bias=False)
        self.queries = nn.Linear(self.head_dim, self.head_dim, bias=False)
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, values: Tensor, keys: Tensor, query: Tensor, mask: Tensor | None = None) -> Tensor:
        """query [N, Sq, E], values and keys [N, Sk, E]; mask broadcast to [N, H, Sq, Sk], 0 where none may attend."""
        values, keys, queries = (
            x.reshape(*x.shape[:2], self.heads, self.head_dim)  # [N, S, H, d]
            for x in (values, keys, query)
        )
        if self.projects:
            values, keys, queries = self.values(values), self.keys(keys), self.queries(queries)
        energy = queries.transpose(1, 2) @ keys.permute(0, 2, 3, 1)  # [N, H, Sq, Sk]
        scores = energy / math.sqrt(self.embed_size)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e20)
        context = scores.softmax(dim=-1) @ values.transpose(1, 2)  # [N, H, Sq, d]
        return self.fc_out(context.transpose(1, 2).reshape(query.shape))


class TransformerBlock(nn.Module):
    def __init__(
        self, embed_size: int, heads: int, dropout: float = 0.1, expansion_factor: float = 4, projects: bool = True
    ) -> None:
        super().__init__()
        hidden = round(expansion_factor * embed_size)
        self.attention = SelfAttention(embed_size, heads, projects)
        self.norm1 = nn.LayerNorm(embed_size)
        self.norm2 = nn.LayerNorm(embed_size)
        self.feed_forward = nn.Sequential(nn.Linear(embed_size, hidden), nn.GELU(), nn.Linear(hidden, embed_size))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        normed = self.norm1(x)
        x = x + self.dropout(self.attention(normed, normed, normed, mask))
        return x + self.dropout(self.feed_forward(self.norm2(x)))


class Encoder(nn.Module):
    def __init__(
        self,
        embed_size: int,
        heads: int,
        num_layers: int = 6,
        dropout: float = 0.1,
        expansion_factor: float = 4,
        projects: bool = True,
    ) -> None:
        super().__init__()
        block = (embed_size, heads, dropout, expansion_factor, projects)
        self.layers = nn.ModuleList(TransformerBlock(*block) for _ in range(num_layers))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x [N, S, E]; mask broadcast to [N, H, S, S], 0 where nothing may attend."""
        for layer in self.layers:
            x = layer(x, mask)
        return x
