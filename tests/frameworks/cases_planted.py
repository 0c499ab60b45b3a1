"""Layers as people write them, each with one line that is wrong."""

from typing import Any

import torch
from cases_plain import Plain
from torch import nn


class DropsBesideAMask(Plain):
    """Its weights are dropped in evaluation, too, and it needs a mask [batch, sequence], 1 = attend."""

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k, v = (self.split(each(y)) for each in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        scores = scores + (1 - attention_mask[:, None, None, :]) * -10000.0
        weights = nn.functional.dropout(scores.softmax(-1), 0.1)  # always
        x = x + self.o((weights @ v).transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))


class _Written(Plain):
    """Its attention as it is written out; `mask` [batch, sequence], true = attend. Its weights are larger than those of
    which an exporter makes one where they are read twice."""

    D, H, HIDDEN = 48, 4, 64

    def heads(self, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q = self.q(y)
        k = self.k(y)
        v = self.v(y)
        return q, k, v

    def forward(self, x: torch.Tensor, mask: Any = None) -> torch.Tensor:
        q, k, v = (self.split(each) for each in self.heads(self.norm1(x)))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
        x = x + self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))


class QueryByTheMapOfKeys(_Written):
    def heads(self, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q = self.k(y)  # for the query
        k = self.k(y)
        v = self.v(y)
        return q, k, v


class KeyByTheMapOfQueries(_Written):
    def heads(self, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        q = self.q(y)
        k = self.q(y)  # for the key
        v = self.v(y)
        return q, k, v
