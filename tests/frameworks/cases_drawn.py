"""Layers as people write them who publish one: with one norm for two, a call by place, or a line that names nothing."""

from typing import Any

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor, nn
from torch.nn import functional as F


class OneNormUnscaled(PlainPost):
    """One norm stands behind both sums, and nothing divides the scores: the number for that is never read."""

    def __init__(self) -> None:
        super().__init__()
        self.norm2 = self.norm1
        self.scale = (self.D // self.H) ** 0.5

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2)
        if ignore is not None:
            scores = scores.masked_fill(ignore[:, None, None, :], -1e10)
        return scores.softmax(-1) @ v


class ThreeBranches(Plain):
    """A third branch, of a matrix that no exporter takes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm3, self.state = self.norm(), nn.Parameter(torch.randn(self.D, self.D) / 8)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.norm3(x) @ torch.linalg.matrix_exp(self.state)
        x = x + self.attend(self.norm1(x), None)
        return x + self.ffn(self.norm2(x))  # the third


class OfSeveralInputs(PlainPost):
    """Its call has no names: x and its padding are unpacked."""

    def forward(self, *inputs: Tensor) -> Tensor:
        x, padding = inputs
        return self.layer(x, padding)


class OfOneBatch(Plain):
    """Heads are split by the size of the batch for which it was made; its masks are numbers that are added."""

    def __init__(self) -> None:
        super().__init__()
        self.batch_size = 2

    def split(self, x: Tensor) -> Tensor:
        return x.view(self.batch_size, -1, self.H, self.D // self.H).transpose(1, 2)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return ignore

    def forward(self, x: Tensor, key_padding_mask: Tensor | None, causal_mask: Tensor | None) -> Tensor:
        added = [each for each in (key_padding_mask, causal_mask) if each is not None]
        return self.layer(x, torch.stack(added).sum(0) if added else None)


class NamesNoAttribute(Plain):
    """It was made with another name for the number of its heads."""

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.layer(x, mask)


class KeepsItsWeights(Plain):
    """What it keeps for a picture is the first of two that one line assigns."""

    def weighted(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> tuple[Tensor, Tensor]:
        scores, bias = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, self.bias(k.shape[2], ignore)
        weights = (scores if bias is None else scores + bias.to(scores.dtype)).softmax(-1)
        return weights, weights @ v

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        self.kept, y = self.weighted(q, k, v, ignore)
        return y


class HeadsMapTheirOwn(Plain):
    """Each head maps the features that it has, and no others."""

    def __init__(self) -> None:
        super().__init__()
        d = self.D // self.H
        self.q, self.k, self.v = (nn.ModuleList(nn.Linear(d, d) for _ in range(self.H)) for _ in range(3))

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        made = []
        for head, part in enumerate(x.chunk(self.H, -1)):
            q, k, v = self.q[head](part), self.k[head](part), self.v[head](part)
            made.append(F.softmax(q @ k.transpose(-1, -2) / part.shape[-1] ** 0.5, -1) @ v)
        return self.o(torch.cat(made, -1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class FillsNothing(Plain):
    """Its padding goes into a tensor that is thrown away, in either of two branches."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None, causal: bool = False) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if causal:
            scores = scores.tril()
            if ignore is not None:
                scores.masked_fill(ignore[:, None, None, :], -torch.inf)
        elif ignore is not None:
            scores.masked_fill(ignore[:, None, None, :], -torch.inf)  # this one
        return scores.softmax(-1) @ v

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        return self.o(self.core(q, k, v, ignore).transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, src_padding_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, src_padding_mask)


class FillsNothingBesideOneNorm(FillsNothing):
    """Its norms are one, which may be meant."""

    def __init__(self) -> None:
        super().__init__()
        self.norm2 = self.norm1

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attend(x, ignore))
        return self.norm2(x + self.ffn(x))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.layer(x, mask)


class FilledBeforeASoftmax(Plain):
    """Its softmax is a part, whose weights are seen; its mask is of keys alone."""

    def __init__(self) -> None:
        super().__init__()
        self.softmax = nn.Softmax(-1)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if ignore is not None:
            scores = scores.masked_fill(ignore == 0, -1e9)
        return self.softmax(scores) @ v

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        shown = None if padding_mask is None else padding_mask.expand(x.shape[0], self.H, -1, -1)
        return self.layer(x, shown)


class PacksOneItem(Plain):
    """x is one item of the positions of all, which its attention alone knows, in four heads.

    Its own call hands on whatever it is given.
    """

    H = 4

    def attend_packed(
        self, x: Tensor, cu_seqlens: Tensor, max_seqlen: int | None, attention_mask: Tensor | None = None
    ) -> Tensor:
        q, k, v = (each.view(*x.shape[:-1], -1, self.D // self.H).transpose(1, 2) for each in self.maps(x))
        lengths = (cu_seqlens[1:] - cu_seqlens[:-1]).tolist()
        items = zip(*(torch.split(each, lengths, dim=2) for each in (q, k, v)), strict=True)
        made = [F.scaled_dot_product_attention(*each).transpose(1, 2) for each in items]
        return self.o(torch.cat(made, 1).reshape(x.shape))

    def maps(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.q(x), self.k(x), self.v(x)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor, **given: Any) -> Tensor:
        x = hidden_states
        x = x + self.attend_packed(self.norm1(x), attention_mask=attention_mask, **given)
        return x + self.ffn(self.norm2(x))


class TiedOverItems(Plain):
    """All items have one attention, of the sum of their scores, as the rows of an alignment do."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = torch.einsum("bhqd,bhkd->hqk", q, k) / (len(q) * q.shape[-1]) ** 0.5
        return torch.einsum("hqk,bhkd->bhqd", scores.softmax(-1), v)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class SeesLaterByNumbers(Plain):
    """A causal mask of numbers is inverted: the last position sees none."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        seen = torch.ones_like(scores).triu(1)
        scores = scores * seen - 1e10 * (1 - seen)  # the other half
        weights = scores.softmax(-1)
        return weights @ v

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class ShrinksItsWindow(Plain):
    """A map that is smaller than its window shrinks that for good, and is then refused."""

    def __init__(self) -> None:
        super().__init__()
        self.window = 4

    def forward(self, x: Tensor, input_dimensions: tuple[int, int]) -> Tensor:
        self.window = min(self.window, *input_dimensions)
        if self.window < 4:
            raise ValueError("its window is larger than the map")
        return self.layer(x)
