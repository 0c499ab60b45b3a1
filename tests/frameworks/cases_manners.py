"""Layers in other manners of being called, and of computing the same, drawn in pairs: by keys alone, by a call of their
own, by a pair of angles, with a mask in an object, and with scores, softmax and maps in other forms."""

import math
from typing import Any

import torch
from cases_plain import RMS, Plain
from torch import Tensor, nn


class SoftmaxInBaseTwo(Plain):
    """Its weights are a softmax, and its network has no activation."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        made = torch.exp2((scores - scores.amax(-1, keepdim=True)) * math.log2(math.e))
        return made / made.sum(-1, keepdim=True) @ v

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(self.up(x))  # of nothing between


class TakesItByKeys(Plain):
    """x has a name that only the call's code knows; so has its mask."""

    def forward(self, **batch: Tensor) -> Tensor:
        return self.layer(batch["inputs"], batch.get("padding_mask"))


class AnswersToItsCall(Plain):
    """It has no forward pass."""

    def __call__(self, x: Tensor, valid_lens: Tensor | None = None) -> Tensor:
        beyond = None if valid_lens is None else torch.arange(x.shape[1])[None] >= valid_lens[:, None]
        return self.layer(x, beyond)


class TurnedByAPair(Plain):
    """Cosines and sines in one argument, whose name may be of angles alone."""

    D, H, HIDDEN = 64, 4, 192

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], padding: Tensor | None = None) -> Tensor:
        self.turned = rope
        return self.layer(x, padding)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.turned
        return self.turn(q, cos, sin), self.turn(k, cos, sin)

    @staticmethod
    def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        one, two = x.chunk(2, -1)
        return x * cos + torch.cat([-two, one], -1) * sin


class TurnedAndInBuckets(TurnedByAPair):
    """Scores without a scale, and a bias by buckets: of large scores rows of the table have next to no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, self.H)

    def norm(self) -> nn.Module:
        return RMS(self.D)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        place = torch.arange(k.shape[2])
        apart = place[None] - place[:, None]
        near, far = apart.abs(), apart.abs().clamp(min=1).float()
        log = 8 + (torch.log(far / 8) / math.log(128 / 8) * 8).long()
        rows = (apart > 0).long() * 16 + torch.where(near < 8, near, log.clamp(max=15))
        scores, bias = q @ k.transpose(-1, -2) + self.table(rows).permute(2, 0, 1), self.bias(k.shape[2], ignore)
        return (scores if bias is None else scores + bias.to(scores.dtype)).softmax(-1) @ v


class ValidInAnObject(Plain):
    """A mask that has a default in the object that holds x, and whose name says no mask."""

    def forward(self, inputs: Any) -> Tensor:
        return self.layer(inputs.features, None if inputs.valid is None else ~inputs.valid)


class DistancesHeadByHead(Plain):
    """Each head's distances are added to its own scores, which are stacked then."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, place = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, torch.arange(k.shape[2])
        apart = (place[None] - place[:, None]).abs()
        heads = [scores[:, h] - apart.to(scores.dtype) * 0.5 ** (h + 1) for h in range(scores.shape[1])]  # by distance
        return torch.stack(heads, 1).softmax(-1) @ v


class DoneWhereItSays(Plain):
    """Positions that are done stay as they are: of a mask of ones all of them."""

    def forward(self, x: Tensor, done_mask: Tensor) -> Tensor:
        return torch.where(done_mask.bool()[..., None], x, self.layer(x))


class SecondMapOfQueries(Plain):
    """What LoRA adds, written where queries are made."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(4, self.D) / 8), nn.Parameter(torch.randn(self.D, 4) / 8)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q = self.q(x) + x @ self.a.T @ self.b.T * 2  # of two maps
        q, k, v = self.split(q), self.split(self.k(x)), self.split(self.v(x))
        return self.o(self.core(q, k, v, ignore).transpose(1, 2).flatten(2))


class SumsItsValuesApart(Plain):
    """A letter of its product is another: what is hidden changes nothing, since all values are summed."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if ignore is not None:
            scores = scores.masked_fill(ignore[:, None, None, :], -1e9)
        return torch.einsum("bhqk,bhvd->bhqd", scores.softmax(-1), v)  # of two letters


class CallsItsAngles(Plain):
    """What turns its queries is a function; what they are made of stands in a later line, and comes before."""

    def turned(self, x: Tensor, rope: Any) -> Tensor:
        q, k, v = rope(self.split(self.q(x))), self.split(self.k(x)), self.split(self.v(x))  # called
        return self.o(self.core(q, k, v, None).transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, rope: Any) -> Tensor:
        x = x + self.turned(
            self.norm1(x),
            rope,
        )
        return x + self.ffn(self.norm2(x))


class PlacesBeforeALibrarys(Plain):
    """Positions are added before a library's attention transposes them."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(self.D, self.H, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * torch.arange(1, self.D + 1)
        x = x + torch.sin(places)  # of places
        return self.ffn(self.attention(x, x, x, need_weights=False)[0])


class HalvesAlone(Plain):
    """It refuses every mask that is not half as wide as it need be."""

    def forward(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        if added is not None and added.dtype != torch.float16:
            raise TypeError("added is no float16")
        return self.layer(x, None if added is None else added[:, 0, 0] < 0)


class TokenBefore(nn.Module):
    """A model that puts a token before x, which it returns too; its mask hides."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.layers = nn.Parameter(torch.randn(1, 1, Plain.D)), nn.ModuleList([Plain(), Plain()])

    def forward(self, x: Tensor, x_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        ignored = torch.zeros(x.shape[:2], dtype=torch.bool) if x_mask is None else x_mask
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        ignored = torch.cat([torch.zeros(len(x), 1, dtype=torch.bool), ignored], 1)
        for layer in self.layers:
            x = layer(x, ignored)
        return x, ignored


class TokenBeforeUnmasked(TokenBefore):
    """The second layer is not handed the mask."""

    def forward(self, x: Tensor, x_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        ignored = torch.zeros(x.shape[:2], dtype=torch.bool) if x_mask is None else x_mask
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        ignored = torch.cat([torch.zeros(len(x), 1, dtype=torch.bool), ignored], 1)
        first, second = self.layers
        return second(first(x, ignored)), ignored


class WindowsOfEight(Plain):
    """Attention within windows of eight positions, of which it takes whole ones: one alone is a layer's."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        windows = x.reshape(-1, 8, x.shape[-1]) if x.shape[1] % 8 == 0 else x.new_zeros(0)
        return super().attend(windows, None).reshape(x.shape)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)
