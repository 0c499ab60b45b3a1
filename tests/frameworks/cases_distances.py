"""Learned numbers of each distance that are added to the scores, in the ways that tables of them are written."""

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor, nn


class OfDistance(Plain):
    """A table begins with the keys before a query; those beyond seven positions share a row."""

    MOST = 7

    def __init__(self) -> None:
        super().__init__()
        self.table = self.make_table()

    def make_table(self) -> nn.Module:
        return nn.Embedding(2 * self.MOST + 1, self.H)

    def apart(self, n: int) -> Tensor:
        at = torch.arange(n)
        return (at - at[:, None]).clamp(-self.MOST, self.MOST) + self.MOST

    def numbers(self, n: int) -> Tensor:
        """[H, n, n]."""
        return self.table(self.apart(n)).permute(2, 0, 1)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        own, others = self.numbers(n), super().bias(n, ignore)
        return own if others is None else own + others


class OfTurnedDistance(OfDistance):
    """Query less key, as windows have it; a sequence that the table does not reach is refused."""

    MOST = 63

    def apart(self, n: int) -> Tensor:
        at = torch.arange(n)
        return at[:, None] - at + self.MOST


class OfDistanceByHeads(OfDistance, PlainPost):
    """A parameter [heads, distances]."""

    def make_table(self) -> nn.Parameter:  # type: ignore[override]
        return nn.Parameter(torch.randn(self.H, 2 * self.MOST + 1))

    def numbers(self, n: int) -> Tensor:
        return self.table[:, self.apart(n)]


class OfTwiceTheLength(OfDistance):
    """A table of twice the longest sequence, whose first row nobody reads."""

    MOST = 32

    def make_table(self) -> nn.Module:
        return nn.Embedding(2 * self.MOST, self.H)

    def apart(self, n: int) -> Tensor:
        at = torch.arange(n)
        return at - at[:, None] + self.MOST


class OfAnIndex(OfDistance):
    """Of windows of twelve positions, whose distances lie in a buffer."""

    MOST = 11

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("index", super().apart(12), persistent=False)

    def apart(self, n: int) -> Tensor:
        return self.index


class OfDistanceOneRowOff(OfDistance):
    """The keys beside a query share the row of the query's own position."""

    def apart(self, n: int) -> Tensor:
        at = torch.arange(n)
        apart = at - at[:, None]
        return (apart - apart.sign()).clamp(-self.MOST, self.MOST) + self.MOST


class OfDistanceHeadsNotTransposed(OfDistance):
    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        return self.o(self.core(q, k, v, ignore).reshape(x.shape))


class StackOfDistances(nn.Module):
    """One table for all layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(OfDistance() for _ in range(3))
        for layer in self.layers[1:]:
            layer.table = self.layers[0].table

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, padding)
        return x


class OfDistanceEitherWay(OfDistance):
    """Eight rows, one for each distance, whichever of key and query is first."""

    def make_table(self) -> nn.Module:
        return nn.Embedding(self.MOST + 1, self.H)

    def apart(self, n: int) -> Tensor:
        at = torch.arange(n)
        return (at - at[:, None]).abs().clamp(max=self.MOST)
