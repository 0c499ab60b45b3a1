"""Models of series of numbers, and what stands around layers: the masks that models are told, and make."""

import math

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor, nn


class SeriesFirst(nn.Module):
    """Numbers [sequence, batch, 6]; its masks are PyTorch's own."""

    def __init__(self) -> None:
        super().__init__()
        self.take, self.places = nn.Linear(6, Plain.D), nn.Parameter(torch.randn(400, 1, Plain.D))
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(Plain.D, Plain.H, Plain.HIDDEN), 2)
        self.give = nn.Linear(Plain.D, 5)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None
    ) -> Tensor:
        x = self.take(src) + self.places[: len(src)]
        return self.give(self.layers(x, src_mask, src_key_padding_mask))


class IdsFirst(SeriesFirst):
    """Ids [sequence, batch]; it is not called without a mask of pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.take = nn.Embedding(30, Plain.D)

    def forward(self, src: Tensor, src_mask: Tensor) -> Tensor:
        return super().forward(src, src_mask)


class ToOneOfTwo(nn.Module):
    """Numbers [batch, sequence, 6]; their padding is handed to one layer alone."""

    def __init__(self) -> None:
        super().__init__()
        self.take, self.layers = nn.Linear(6, Plain.D), nn.ModuleList(Plain() for _ in range(2))

    def forward(self, series: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        x = self.take(series)
        return self.layers[1](self.layers[0](x, padding_mask))


class MakesTheMaskOfIds(nn.Module):
    """Its layers are not called without a mask, which it makes of its ids where it is told none."""

    class Layer(PlainPost):
        def forward(self, x: Tensor, source_mask: Tensor) -> Tensor:
            if source_mask.shape != x.shape[:2]:
                raise ValueError("a mask [batch, sequence] is needed")
            return self.layer(x, source_mask == 0)

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layers = nn.Embedding(30, PlainPost.D), nn.ModuleList(self.Layer() for _ in range(2))

    def forward(self, ids: Tensor, source_mask: Tensor | None = None) -> Tensor:
        seen = ids != 0 if source_mask is None else source_mask
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x, seen)
        return x


class ScaledOnALineOfItsOwn(Plain):
    """Scores over the root of all features, some lines behind their product."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2)
        if ignore is not None:
            scores = scores.masked_fill(ignore[:, None, None, :], -math.inf)
        weights = (scores / self.D**0.5).softmax(-1)  # of all features
        return weights @ v


class SaysWhatItWasGiven(Plain):
    """What it raises holds an array, number by number."""

    def forward(self, mode: str, x: Tensor) -> Tensor:
        raise ValueError(f"no mode is called {mode}")


class MapsTheQueryTwice(PlainPost):
    """Another map stands behind that of the query, and an activation behind the network."""

    def __init__(self) -> None:
        super().__init__()
        self.again = nn.Linear(self.D, self.D)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.split(self.again(q.transpose(1, 2).flatten(2))), k

    def ffn(self, x: Tensor) -> Tensor:
        return super().ffn(x).relu()


class TurnsByWhatItMakes(nn.Module):
    """Numbers [batch, sequence, 6]; what turns queries and keys is made once, under a name of its own."""

    class Layer(Plain):
        def forward(self, x: Tensor, wheel: Tensor) -> Tensor:
            self.wheel = wheel
            return self.layer(x)

        def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
            cos, sin = self.wheel
            turned = (torch.cat((-each[..., 4:], each[..., :4]), -1) for each in (q, k))
            q, k = (each * cos + other * sin for each, other in zip((q, k), turned, strict=True))
            return q, k

    def __init__(self) -> None:
        super().__init__()
        self.take, self.layers = nn.Linear(6, Plain.D), nn.ModuleList(self.Layer() for _ in range(2))

    def forward(self, series: Tensor) -> Tensor:
        x = self.take(series)
        angles = torch.arange(x.shape[1])[:, None] * 10000.0 ** (-torch.arange(4) / 4)
        wheel = torch.stack((angles.cos(), angles.sin())).repeat(1, 1, 2).to(x.dtype)
        for layer in self.layers:
            x = layer(x, wheel)
        return x
