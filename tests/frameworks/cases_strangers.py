"""Layers as strangers write them, of which one thing is not as in the classic one."""

import torch
from cases_attention import Rope
from cases_plain import Plain
from torch import Tensor, nn
from torch.nn import functional as F

# ------------------------------------------------------------------------------- norms by length


class ByLength(nn.Module):
    """A row is divided by its length, or by a small number where that is larger."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1) * x.shape[-1] ** 0.5


class NormsByLength(Plain):
    def norm(self) -> nn.Module:
        return ByLength()


class QueriesByLength(NormsByLength):
    """Queries and keys are of length 1, and scores multiplied by a number that was chosen."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(q, dim=-1) * (10 * q.shape[-1] ** 0.5), F.normalize(k, dim=-1)


class QueriesByLengthAlone(Plain):
    """Their norm has another epsilon than the layer's."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(q, dim=-1), F.normalize(k, dim=-1)


# ------------------------------------------------------------------------------- what an exporter takes apart


class HandNormAndRope(Rope):
    """An exporter that simplifies loses the epsilon, and one that does not splits the halves into a sequence."""

    def norm(self) -> nn.Module:
        return _HandNorm(self.D)


class _HandNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return self.weight * (centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-12)) + self.bias
