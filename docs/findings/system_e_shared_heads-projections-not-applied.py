"""Projections that are declared and never applied are parameters all the same: they count, they are saved, and they
have no gradient. Another value in them changes nothing."""

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, embed_size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, embed_size // heads
        self.queries = nn.Linear(self.head_dim, self.head_dim, bias=False)
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = x.reshape(*x.shape[:2], self.heads, self.head_dim).transpose(1, 2)  # and self.queries is not called
        weights = (split @ split.transpose(-2, -1) / (self.heads * self.head_dim) ** 0.5).softmax(dim=-1)
        return self.fc_out((weights @ split).transpose(1, 2).flatten(2))


torch.manual_seed(0)
attention, x = SelfAttention(8, 2), torch.randn(1, 4, 8)
before = attention(x)
before.sum().backward()
print("parameters:", [name for name, _ in attention.named_parameters()])
print("gradient by queries.weight:", attention.queries.weight.grad)
nn.init.zeros_(attention.queries.weight)
print("with a weight of 0 the output changes by", (attention(x) - before).abs().max().item())
