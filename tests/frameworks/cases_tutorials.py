"""Layers and models as tutorials and course work have them: with a mask of later positions that the model makes itself,
a table of few positions, a mask in a column, or arguments that are handed on."""

import math
from typing import Any

import torch
from cases_plain import Plain
from torch import Tensor, nn


class OfWords(nn.Module):
    """Ids [S, B], sequence first; later positions are hidden by the model, which takes no mask."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(24, 3, 40), 2)
        self.table = nn.Embedding(30, 24)

    def forward(self, src: Tensor) -> Tensor:
        n = len(src)
        later = torch.triu(torch.full((n, n), -math.inf), 1)
        return self.encoder(self.table(src) * math.sqrt(24), later)


class OfFewPositions(nn.Module):
    """Its table ends at 40 positions, which its layers know nothing of; padding is where the id is 0."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 3, 40, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.table, self.places = nn.Embedding(30, 24), nn.Parameter(torch.randn(1, 40, 24))

    def masks(self, ids: Tensor) -> dict[str, Tensor]:
        return {"src_key_padding_mask": ids == 0}

    def forward(self, ids: Tensor) -> Tensor:
        return self.encoder(self.table(ids) + self.places[:, : ids.shape[1]], **self.masks(ids))


class OfFewEarlierPositions(OfFewPositions):
    """Its layers need the mask that it makes, which it makes of so many positions."""

    def masks(self, ids: Tensor) -> dict[str, Tensor]:
        n = ids.shape[1]
        return {"mask": torch.ones(n, n, dtype=torch.bool).triu(1)}


class CastsToFill(Plain):
    """Its scores are float32 where they are filled, and in the format of x again behind that."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if ignore is not None:
            scores = scores.float().masked_fill(ignore[:, None, None, :], -math.inf).type_as(scores)
        return scores.softmax(-1) @ v


class KeysInAColumn(Plain):
    """Its mask is [B, S, 1], as what it is to be multiplied with is."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else torch.where(ignore[:, None].transpose(-1, -2), 0.0, -math.inf)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.layer(x, None if mask is None else mask > 0)


class HandsArgumentsOn(nn.TransformerEncoderLayer):
    """What it needs is said by the class before it alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, dim_feedforward=40, **kwargs)
        self.kept: Tensor | None = None


class NamesOneOfThem(nn.TransformerEncoderLayer):
    def __init__(self, d_model: int, **others: Any) -> None:
        super().__init__(d_model, dim_feedforward=40, **others)


class GivesItsWeights(nn.Module):
    """Ids in; what its layers see stands beside its output."""

    class Block(Plain):
        def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            self.weights = (scores if ignore is None else scores.masked_fill(ignore, -math.inf)).softmax(-1)
            return self.weights @ v

        def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
            return self.layer(x, None if mask is None else mask == 0), self.weights

    def __init__(self) -> None:
        super().__init__()
        self.table, self.blocks = nn.Embedding(30, Plain.D), nn.ModuleList(self.Block() for _ in range(2))

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        x, seen = self.table(ids), []
        for block in self.blocks:
            x, weights = block(x, mask)
            seen.append(weights)
        return x, seen


class AsksOfItsMask(Plain):
    """What it does with a mask stands behind what it asks of it, in a function of its own."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return ignore

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, None if attention_mask is None else lowered(attention_mask))


def lowered(attention_mask: Tensor) -> Tensor:
    if attention_mask.dim() == 2:
        attention_mask = attention_mask[:, None, None, :]
    shown = attention_mask.float()
    return (1 - shown) * -1e5  # lowered


class KeepsTruths(Plain):
    """What hides later positions is kept as a parameter, which nothing trains and which is no number."""

    def __init__(self) -> None:
        super().__init__()
        self.later = nn.Parameter(torch.ones(512, 512).triu(1).bool(), requires_grad=False)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return scores.masked_fill(self.hidden(q.shape[-2]), -math.inf).softmax(-1) @ v

    def hidden(self, n: int) -> Tensor:
        return self.later[:n, :n]

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class OfAllItsPositions(KeepsTruths):
    """It takes as many positions as its mask is of, and no other number."""

    def __init__(self) -> None:
        super().__init__()
        self.later = nn.Parameter(self.later[:8, :8], requires_grad=False)

    def hidden(self, n: int) -> Tensor:
        return self.later


class FillsEqualItems(Plain):
    """Its mask [B, S, S] lies where heads are, and so it is taken for one item, and for as many as there are heads."""

    D, H = 16, 4

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if ignore is not None:
            there = ~ignore.flatten(1)
            scores = scores.masked_fill(~(there[:, None] * there[:, :, None]), -1e30)
        return scores.softmax(-1) @ v
