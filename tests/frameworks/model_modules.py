"""Models from ids whose layers are right, and which do one thing each with their mask around them."""

import os

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (2, 8)).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / 8**0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -torch.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.up, self.down = Attention(), nn.Linear(16, 24), nn.Linear(24, 16)
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.down(torch.relu(self.up(x))))


class Right(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(40, 16), nn.Embedding(32, 16)
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def embedded(self, ids: Tensor) -> Tensor:
        return self.words(ids) + self.places(torch.arange(ids.shape[1]))

    def through(self, x: Tensor, mask: Tensor | None) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        return x

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = None if attention_mask is None else attention_mask[:, None, None, :]
        return self.through(self.embedded(ids), mask)


class NotHandedOn(Right):
    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:  # takes it
        return self.through(self.embedded(ids), None)


class WithoutAnOpenMask(Right):
    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        hides = attention_mask is not None and not attention_mask.all()
        return super().forward(ids, attention_mask if hides else None)


class OfTwoRanks(Right):
    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        rank = 0 if attention_mask is None else attention_mask.dim()
        return super().forward(ids, attention_mask if rank == 2 else None)


class PaddingNotHandedOn(Right):
    def forward(self, ids: Tensor, src_key_padding_mask: Tensor | None = None) -> Tensor:
        return self.through(self.embedded(ids), None)


class ToTheFirst(Right):
    def through(self, x: Tensor, mask: Tensor | None) -> Tensor:
        first, second = self.layers
        return second(first(x, mask))


class Inverted(Right):
    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return super().forward(ids, None if attention_mask is None else attention_mask == 0)


class Zeroed(Right):
    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.embedded(ids)
        return self.through(x if attention_mask is None else x * attention_mask[..., None], None)


class Pooled(Right):
    """The mean is over padding, too."""

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        states = super().forward(ids, attention_mask)
        return states, states.mean(1)


class PooledAlone(Pooled):
    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return super().forward(ids, attention_mask)[1]


class PooledWithoutPlaces(PooledAlone):
    """The order of what it flags changes nothing; and it needs its mask, which hides all where it is one."""

    def embedded(self, ids: Tensor) -> Tensor:
        return self.words(ids)

    def forward(self, ids: Tensor, src_key_padding_mask: Tensor) -> Tensor:
        return super().forward(ids, ~src_key_padding_mask)


class ZeroedAndPooled(Right):
    """The mean is over as many as there are, with padding or without."""

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        states = super().forward(ids, attention_mask)
        return (states if attention_mask is None else states * attention_mask[..., None]).mean(1)


class PooledRight(Right):
    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        states = super().forward(ids, attention_mask)
        there = torch.ones(ids.shape) if attention_mask is None else attention_mask.float()
        return {"mean": (states * there[..., None]).sum(1) / there.sum(1, keepdim=True)}


class Causal(Right):
    """Its last positions are seen by none: the first tell."""

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = torch.ones(ids.shape[1], ids.shape[1]).tril()[None, None]
        mask = mask if attention_mask is None else mask * attention_mask[:, None, None, :]
        return self.through(self.embedded(ids), mask + torch.eye(ids.shape[1]))


class OfScores(Right):
    """It needs its mask, of queries and keys."""

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        if mask.ndim != 3:
            raise ValueError("it takes [batch, sequence, sequence]")
        return self.through(self.embedded(ids), mask[:, None])


class SequenceFirst(Right):
    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return super().forward(ids, attention_mask).transpose(0, 1)


class Projected(Right):
    """It takes features, and no ids."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(6, 16)

    def embedded(self, ids: Tensor) -> Tensor:
        return self.features(ids)


class OfAnotherInput(Right):
    """A mask of what it is not given says nothing."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        image_embeds: Tensor | None = None,
        image_attention_mask: Tensor | None = None,
    ) -> Tensor:
        return super().forward(input_ids, attention_mask)


class WithoutMask(Right):
    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids)


class AtRandom(Right):
    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return super().forward(ids, attention_mask) + torch.rand(())


class EndsWithAnOddMask(Right):
    """Its process ends where it is asked whether it looks at its mask."""

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is not None and attention_mask.shape[0] > len(ids):
            os._exit(3)
        return super().forward(ids, attention_mask)


class WithLayersUnused(Right):
    """Two more layers, which no call of it reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Layer() for _ in range(2))
