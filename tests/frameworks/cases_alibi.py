"""What scores lose by distance, as ALiBi has it, in the ways that people write it, and its mistakes."""

import math

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor, nn
from torch.nn import functional as F


def slopes_of(heads: int) -> list[float]:
    """As the authors' code interpolates them."""
    most = 2 ** math.floor(math.log2(heads))
    first = 2 ** (-8 / most)
    between = 2 ** (-4 / most)
    own = [first ** (head + 1) for head in range(most)]
    return own + [between ** (2 * head + 1) for head in range(heads - most)]


class LosesByDistance(Plain):
    """Slopes in a buffer, and distances made for each sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.make_slopes()

    def make_slopes(self) -> None:
        self.register_buffer("slopes", torch.tensor(slopes_of(self.H)))

    def apart(self, n: int) -> Tensor:
        at = torch.arange(n)
        return -(at - at[:, None]).abs()

    def numbers(self, n: int) -> Tensor:
        """[H, n, n]."""
        return self.slopes[:, None, None] * self.apart(n)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        own, others = self.numbers(n), super().bias(n, ignore)
        return own if others is None else own + others


class OfThreeHeads(LosesByDistance, PlainPost):
    """No power of two: the third head's slope is between those of the others."""

    D, H, HIDDEN = 24, 3, 40


class OfOneSequence(LosesByDistance):
    """Three heads of one geometric sequence, made in the forward pass."""

    D, H, HIDDEN = 24, 3, 40

    def make_slopes(self) -> None:
        pass

    def numbers(self, n: int) -> Tensor:
        slopes = 2.0 ** (-8.0 * torch.arange(1, self.H + 1, dtype=self.q.weight.dtype) / self.H)
        return slopes[:, None, None] * self.apart(n)


class KeptForTheLongest(LosesByDistance):
    """A table of 512 positions, cut for each sequence."""

    def make_slopes(self) -> None:
        at = torch.arange(512)
        kept = -torch.tensor(slopes_of(self.H))[:, None, None] * (at - at[:, None]).abs()
        self.register_buffer("kept", kept, persistent=False)

    def numbers(self, n: int) -> Tensor:
        return self.kept[:, :n, :n]


class GivenToTheKernel(LosesByDistance):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias(k.shape[2], ignore).to(q.dtype))


class LosesCausally(LosesByDistance):
    """Keys after a query are hidden, and those before it lose by distance."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        at = torch.arange(n)
        return super().bias(n, ignore).masked_fill(at > at[:, None], -torch.inf)


class HandedToEachLayer(nn.Module):
    """The model makes the numbers, with those of padding, for all its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(40, 24), nn.LayerNorm(24)
        self.layers = nn.ModuleList(TakesNumbers() for _ in range(2))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x, at = self.norm(self.embedding(input_ids)), torch.arange(input_ids.shape[1])
        lost = torch.tensor(slopes_of(3), dtype=x.dtype)[:, None, None] * (at - at[:, None]).abs()
        numbers = (1.0 - attention_mask[:, None, None].to(x.dtype)) * -10000.0 - lost
        for layer in self.layers:
            x = layer(x, numbers)
        return x


class TakesNumbers(PlainPost):
    D, H, HIDDEN = 24, 3, 40

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x, bias)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return ignore


class GainsByDistance(LosesByDistance):
    def apart(self, n: int) -> Tensor:
        return -super().apart(n)


class GainsBehindTheQuery(LosesByDistance):
    """Key less query, as before a causal mask."""

    def apart(self, n: int) -> Tensor:
        at = torch.arange(n)
        return at - at[:, None]


class LosesByOneSlope(LosesByDistance):
    """All heads have that of the first."""

    def make_slopes(self) -> None:
        self.register_buffer("slopes", torch.tensor(slopes_of(self.H)[:1] * self.H))


class SlopesFromOne(LosesByDistance):
    """The first head's slope is 1."""

    def make_slopes(self) -> None:
        self.register_buffer("slopes", torch.tensor([2 ** (-8 * head / self.H) for head in range(self.H)]))


class SlopesThatAreLearned(LosesByDistance):
    def make_slopes(self) -> None:
        self.slopes = nn.Parameter(torch.tensor(slopes_of(self.H)))
