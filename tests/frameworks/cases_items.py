"""Layers of PyTorch that take one item, [sequence, d_model], and no batch."""

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor, nn
from torch.nn import functional as F


class OfOneItem(Plain):
    """One head, written with two axes; `.T` turns a batch otherwise."""

    def forward(self, rows: Tensor) -> Tensor:
        x = self.norm1(rows)
        scores = self.q(x) @ self.k(x).T / self.D**0.5
        x = rows + self.o(scores.softmax(1) @ self.v(x))
        return x + self.ffn(self.norm2(x))


class OfOneItemWithItsMask(PlainPost):
    """`padding` [sequence], true = ignore."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        length, width = x.shape
        q, k, v = (part(x).view(length, self.H, -1).transpose(0, 1) for part in (self.q, self.k, self.v))
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        if padding is not None:
            scores = scores.masked_fill(padding.view(1, 1, length), -torch.inf)
        x = self.norm1(x + self.o((scores.softmax(-1) @ v).transpose(0, 1).reshape(length, width)))
        return self.norm2(x + self.ffn(x))


class OfOneItemOverQueries(OfOneItem):
    """Its softmax is over the queries."""

    def forward(self, rows: Tensor) -> Tensor:
        x = self.norm1(rows)
        scores = self.q(x) @ self.k(x).T / self.D**0.5
        x = rows + self.o(nn.functional.softmax(scores, dim=0) @ self.v(x))
        return x + self.ffn(self.norm2(x))


class OfWindowsOfAll(Plain):
    """An axis of windows, of which there is one, stands between heads and positions, as in Hiera."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(*(each.unsqueeze(2) for each in (q, k, v))).squeeze(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class OfOneVector(Plain):
    """It is given a vector for each item, and its batch stands where heads are cut: each attends to itself."""

    def forward(self, rows: Tensor) -> Tensor:
        x = self.norm1(rows)
        q, k, v = (
            part(x).view(len(x), -1, self.H, self.D // self.H).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        x = rows + self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(len(x), self.D))
        return x + self.ffn(self.norm2(x))
