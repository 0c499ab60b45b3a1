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
        x = x + self.o(self.merged(scores.softmax(-1) @ v))
        return x + self.ffn(self.norm2(x))

    def merged(self, y: torch.Tensor) -> torch.Tensor:
        """Of heads [B, H, S, d], the rows [B, S, D]."""
        return y.transpose(1, 2).flatten(2)


class OneNormOfAnotherEpsilon(_Written):
    def __init__(self) -> None:
        super().__init__()
        self.norm2 = nn.LayerNorm(self.D, eps=1e-3)


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


class MergedWithoutATranspose(_Written):
    def merged(self, y: torch.Tensor) -> torch.Tensor:
        return y.reshape(len(y), -1, self.D)  # of the rows


class CutWithoutATranspose(_Written):
    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(len(x), self.H, x.shape[1], -1)  # of the heads


class _NormOfNumbers(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], self.a_2, self.b_2)


class TheSameNormAgain(Plain):
    """Its norms are told apart by a number alone, in a list; the network's is that of attention once more. Their own
    parameters have numbers, too."""

    def __init__(self) -> None:
        super().__init__()
        del self.norm1, self.norm2
        self.norms = nn.ModuleList(_NormOfNumbers(self.D) for _ in range(2))

    def layer(self, x: torch.Tensor, ignore: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.attend(self.norms[0](x), ignore)
        return x + self.ffn(self.norms[0](x))  # once more


class WithoutALastNorm(nn.Module):
    """Two pre-norm layers of PyTorch's own, and nothing behind them."""

    def __init__(self) -> None:
        super().__init__()
        one = nn.TransformerEncoderLayer(24, 3, 40, activation="gelu", norm_first=True, batch_first=True)
        self.layers = nn.TransformerEncoder(one, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)  # type: ignore[no-any-return]
