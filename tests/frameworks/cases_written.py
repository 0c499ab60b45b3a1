"""Layers of PyTorch as people write and call them: what an argument is, in which formats, with which tricks."""

import math
from typing import Any

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor, nn


class WholeMask:
    """Which keys each query sees: all of them, where it is not told."""

    def __init__(self, seen: Tensor) -> None:
        self.seen = seen


class MaskOfAClass(PlainPost):
    """A mask is an object, of which a tensor is none."""

    def forward(self, x: Tensor, attn_mask: WholeMask | None = None) -> Tensor:
        attn_mask = attn_mask or WholeMask(torch.ones(x.shape[1], dtype=torch.bool))
        return self.layer(x, ~attn_mask.seen.expand(x.shape[:2]))


class CausalByIndices(Plain):
    """It writes a number over the scores of later keys, at their places."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        row, column = torch.triu_indices(q.shape[2], q.shape[2], 1)
        scores[:, :, row, column] = -1e4
        return scores.softmax(-1) @ v


class _Buckets(PlainPost):
    """A row of a table by distance, as T5's."""

    one_way = False

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, self.H)

    def bucket(self, n: int) -> Tensor:
        place = torch.arange(n)
        ahead = place[None] - place[:, None]
        count = 32 if self.one_way else 16
        apart, first = ((-ahead).clamp(min=0), 0) if self.one_way else (ahead.abs(), (ahead > 0) * count)
        exact = count // 2
        many = torch.log(apart.clamp(min=1) / exact) / math.log(128 / exact) * (count - exact)
        return first + torch.where(apart < exact, apart, (exact + many.long()).clamp(max=count - 1))

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        added, hidden = self.table(self.bucket(n)).permute(2, 0, 1)[None], super().bias(n, ignore)
        return added if hidden is None else added + hidden


class BucketsOneWay(_Buckets):
    """The buckets of T5's decoder, in an encoder: all later keys share one."""

    one_way = True


class BucketsOfADecoder(BucketsOneWay):
    """The same in a decoder, which has no later keys."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        added = super().bias(n, ignore)
        assert added is not None
        return added + torch.full((n, n), -torch.inf).triu(1)


class BucketsByGroups(_Buckets):
    """Heads lie by groups of those that share keys: [batch, groups, heads of a group, sequence, sequence]."""

    D, H, HIDDEN = 32, 4, 48

    def make_k(self) -> nn.Module:
        return nn.Linear(self.D, self.D // 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)

    def added(self, n: int) -> Tensor:
        bias = self.bias(n, None)
        assert bias is not None
        return bias

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        n = q.shape[2]
        grouped = q.unflatten(1, (2, 2)) @ k[:, :, None].mT / q.shape[-1] ** 0.5
        scores = grouped + self.added(n).view(1, 2, 2, n, n)
        return (scores.softmax(-1) @ v[:, :, None]).flatten(1, 2)


class SlopesByGroups(BucketsByGroups):
    """Numbers in proportion to the distance, by other slopes than ALiBi has."""

    def __init__(self) -> None:
        super().__init__()
        del self.table

    def added(self, n: int) -> Tensor:
        place = torch.arange(n)
        return -(place[None] - place[:, None]).abs() * 2.0 ** -torch.arange(1, 5)[:, None, None]


class _OverTime(nn.Module):
    """Attention of each position over the frames that an item is cut into."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out, self.qkv = nn.Linear(width, width), nn.Linear(width, 3 * width)

    def forward(self, x: Tensor, frames: int = 1) -> Tensor:
        q, k, v = self.qkv(x.unflatten(0, (-1, frames)).transpose(1, 2)).chunk(3, -1)
        seen = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.out(seen.transpose(1, 2).flatten(0, 1))


class OverTimeToo(Plain):
    """Over one frame attention is a linear map, and no adapter beside one."""

    def __init__(self) -> None:
        super().__init__()
        self.over_time = _OverTime(self.D)

    def forward(self, x: Tensor, frames: int = 1) -> Tensor:
        x = self.layer(x)
        return x + self.over_time(x, frames)


class KeepsGradientsOfWeights(Plain):
    """For pictures of what it attends to, whether gradients are computed or not."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        weights.register_hook(self._keep)
        return weights @ v

    def _keep(self, gradient: Tensor) -> None:
        self.kept = gradient


class HalvesInside(PlainPost):
    """Its network is in float16, and what goes in and comes out is cast."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = self.up.half(), self.down.half()

    def ffn(self, x: Tensor) -> Tensor:
        return super().ffn(x.half()).float()


class TurnedBySinusoids(Plain):
    """Sines before cosines, in a pair, of neighbouring features."""

    def forward(self, x: Tensor, sinusoidal_pos: Any = None) -> Tensor:
        q, k, v = (self.split(part(self.norm1(x))) for part in (self.q, self.k, self.v))
        q, k = self.turned(q, sinusoidal_pos), self.turned(k, sinusoidal_pos)
        x = x + self.o(self.core(q, k, v, None).transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))

    def turned(self, x: Tensor, sinusoidal_pos: Any) -> Tensor:
        sin, cos = sinusoidal_pos
        one, two = x[..., ::2], x[..., 1::2]
        return torch.stack([one * cos - two * sin, two * cos + one * sin], -1).flatten(-2)


class TurnedBySinusoidsInOne(TurnedBySinusoids):
    def turned(self, x: Tensor, sinusoidal_pos: Any) -> Tensor:
        return super().turned(x, sinusoidal_pos.chunk(2, -1))


NOTHING_KEPT = torch.zeros(0, 0, 0)


class MaskBesideWhatIsUnread(Plain):
    """Encoders of speech hand positions on to layers that read none."""

    def forward(self, x: Tensor, mask: Tensor, pos_emb: Tensor, cache: Tensor = NOTHING_KEPT) -> Tensor:
        return self.layer(x, mask if mask.size(2) else None)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if ignore is None:
            return scores.softmax(-1) @ v
        hidden = ignore[:, None, :, : k.shape[2]].eq(0)
        return scores.masked_fill(hidden, -torch.inf).softmax(-1).masked_fill(hidden, 0.0) @ v


class OfRowsWithAMask(PlainPost):
    """[batch, rows, sequence, d_model], where a mask is added to the scores of each row; as many heads as items that
    are asked."""

    def forward(self, x: Tensor, attention_mask: Tensor, rows: Any) -> Tensor:
        x = self.norm1(x + self.masked(x, attention_mask))
        return self.norm2(x + self.ffn(x))

    def masked(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (self.H, -1)).permute(0, 1, 3, 2, 4) for part in (self.q, self.k, self.v))
        scores = q @ k.mT / q.shape[-1] ** 0.5 + mask
        return self.o((scores.softmax(-1) @ v).permute(0, 1, 3, 2, 4).flatten(3))


class OfPatchesAlone(PlainPost):
    """It takes the 14 × 14 patches of a usual image."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.unflatten(1, (14, 14)).flatten(1, 2))


class MaskThrownAwayInATuple(PlainPost):
    """Its mask comes in a tuple with x, and is never used."""

    def forward(self, given: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
        x, seen = given
        return self.layer(x, seen), seen

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if ignore is not None:
            scores.masked_fill(ignore == 0, -1e9)
        return scores.softmax(-1) @ v


class MaskInATuple(MaskThrownAwayInATuple):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if ignore is not None:
            scores = scores.masked_fill(ignore[:, None, None] == 0, -torch.inf)
        return scores.softmax(-1) @ v


class MaskAmongBiases(Plain):
    """`mask` 1 = attend, of numbers; the biases are for another way to compute the scores."""

    def forward(self, x: Tensor, mask: Tensor, w_bias: Tensor | None = None, r_bias: Tensor | None = None) -> Tensor:
        self._given = mask, w_bias, r_bias
        return self.layer(x)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return self.masked(x, *self._given)

    def masked(self, x: Tensor, mask: Tensor, w_bias: Tensor | None, r_bias: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = torch.mul(q @ k.mT / q.shape[-1] ** 0.5, mask) - 1e4 * (1.0 - mask)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class WideHeads(PlainPost):
    """Heads of 12 features where 3 of 8 are as wide as x; their maps have no biases."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(self.D, 36, bias=False) for _ in range(3))
        self.o = nn.Linear(36, self.D)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.H, -1)).transpose(1, 2)


class _ByDeviation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)


class NormedByDeviation(PlainPost):
    """Over D − 1, without an epsilon, a gain or a shift."""

    def norm(self) -> nn.Module:
        return _ByDeviation()


def precision_told_twice() -> nn.Module:
    """PyTorch has two ways to say how precise products are, and raises where it is asked after both."""
    torch.set_float32_matmul_precision("high")
    torch.backends.cuda.matmul.allow_tf32 = False
    return Plain()
