"""Kinds of layers that a random pool of the published ones showed to be refused, or judged, for a reason not theirs."""

from typing import Any

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor, nn


class SummedBeforeTheSkip(Plain):
    """What the network and attention give is added first, and x to that, as in GPT-NeoX."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return self.ffn(self.norm2(x)) + self.attend(self.norm1(x), ignore) + x


class ShapesLeftOut(PlainPost):
    """What it does not do without has a default, stands behind a mask that has none, and others are handed on."""

    def forward(self, x: Tensor, mask: Tensor, shapes: Any = None, reach: Any = None, **more: object) -> Tensor:
        x = x if reach is None else x + reach
        return self.layer(x, mask) * sum(height * width for height, width in shapes)


class BlocksLeftOut(Plain):
    """The line that fails calls it otherwise than the argument is called."""

    def forward(self, x: Tensor, mask: Tensor | None = None, blocks: Tensor | None = None) -> Tensor:
        return self.within(self.layer(x, mask), blocks)

    def within(self, x: Tensor, grouped: Tensor | None) -> Tensor:
        return torch.gather(grouped, 1, x.argmax(-1, keepdim=True))


class AttendsToAKey(Plain):
    """An argument called `key` that is a sequence, and x again where it is None, as in GroupViT."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        x, other = self.norm1(query), self.norm1(query if key is None else key)
        q, k, v = self.split(self.q(x)), self.split(self.k(other)), self.split(self.v(other))
        x = query + self.o(self.core(q, k, v, None).transpose(1, 2).flatten(2))
        return x + self.ffn(self.norm2(x))


class PositionsBoundWhereGiven(PlainPost):
    """What it adds to queries and keys is None by default, and it has no way without, as in Table Transformer."""

    def forward(self, x: Tensor, mask: Tensor, object_queries: Tensor | None = None) -> Tensor:
        if object_queries is not None:
            original, x = x, x + object_queries
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(original))
        y = self.norm1(original + self.o(self.core(q, k, v, mask).transpose(1, 2).flatten(2)))
        return self.norm2(y + self.ffn(y))


class RowsSqueezed(Plain):
    """Rows of all items, of which each is computed by itself; an axis that is not there is taken off, as in MiniMax."""

    def forward(self, rows: Tensor, cu_seqlens: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
        self.turned = cos_sin
        x, lengths = rows.squeeze(0), cu_seqlens.diff().tolist()
        q, k, v = (each(self.norm1(x)).unflatten(-1, (2, 8)).transpose(0, 1) for each in (self.q, self.k, self.v))
        parts = zip(*(each.split(lengths, 1) for each in (*self.rotate(q, k), v)), strict=True)
        x = x + self.o(torch.cat([self.core(*part, None) for part in parts], 1).transpose(0, 1).flatten(1))
        return x + self.ffn(self.norm2(x))

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Of as many features as there are cosines."""
        cos, sin = self.turned

        def turned(t: Tensor) -> Tensor:
            part, rest = t[..., : cos.shape[-1]], t[..., cos.shape[-1] :]
            first, second = part.chunk(2, -1)
            return torch.cat((part * cos + torch.cat((-second, first), -1) * sin, rest), -1)

        return turned(q), turned(k)


class PReLU(Plain):
    def make_ffn(self) -> None:
        super().make_ffn()
        self.slope = nn.PReLU()

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(self.slope(self.up(x)))


class GatedBySoftmax(Plain):
    """As PatchTSMixer's feature mixers."""

    def make_ffn(self) -> None:
        super().make_ffn()
        self.gate = nn.Linear(16, 16)

    def ffn(self, x: Tensor) -> Tensor:
        y = super().ffn(x)
        return y * self.gate(y).softmax(-1)


class AttentionAlone(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return self.norm1(x + self.attend(x, ignore))


class NetworkAlone(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return x + self.ffn(self.norm1(x))


class GatedNetworkAlone(nn.Module):
    """Neither a norm nor a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(16, 24, bias=False), nn.Linear(16, 24, bias=False)
        self.down = nn.Linear(24, 16, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class GroupsOfFeatures(nn.Module):
    """A map of each half of the features, as in ConvBERT."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(2, 8, 8)), nn.Parameter(torch.randn(16))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, 2, 8).transpose(0, 1)
        return (rows @ self.weight).transpose(0, 1).reshape(x.shape) + self.bias


class HoldsAnother(PlainPost):
    """Parts that no call with x alone reaches, as the cross attention of a BERT with a flag."""

    def __init__(self) -> None:
        super().__init__()
        self.cross = nn.ModuleDict({name: nn.Linear(24, 24) for name in ("query", "key", "value")})


class _Gain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(16))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class FilledByNothing(Plain):
    """Its gains are what memory held, until a checkpoint is loaded; a mask hides twice, as in CPM-Ant."""

    def norm(self) -> nn.Module:
        return _Gain()

    def forward(self, x: Tensor, attention_mask: Tensor, position_bias: Tensor | None = None) -> Tensor:
        self.added, self.shut = position_bias, attention_mask[:, None] == torch.tensor(False)
        return self.layer(x)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / 8**0.5 + self.added
        weights = scores.masked_fill(self.shut, -torch.inf).softmax(-1)
        return weights.masked_fill(self.shut, 0) @ v


class OfFewPositions(Plain):
    """It has a table of as many, and its mask is of each query."""

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if x.shape[1] > 6:
            raise ValueError("no more than 6 positions")
        return self.layer(x, attention_mask)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else torch.where(ignore[:, None], 0.0, -1e9)


class HoldsItsAttention(nn.Module):
    """A part of it has the first residual sum; it needs what its own call alone knows, so that parts are run alone."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = AttentionAlone(), nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, x: Tensor, language: Tensor) -> Tensor:
        y = self.attention(x)
        y = self.norm(y + self.down(torch.tanh(self.up(y))))
        return y if language is None else y + language[:, None, None]


class HoldsCrossAttention(nn.Module):
    """Its first part is attention of one sequence, with a residual sum, and it is none of an encoder itself."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.cross = AttentionAlone(), nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, x: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        y = self.attention(x)
        y = y + self.cross(y, encoder_hidden_states, encoder_hidden_states)[0]
        return self.norm(y + self.down(torch.relu(self.up(y))))


class ConvolvedBehindAttention(Plain):
    """What a mask hides from attention goes on to later positions by a convolution, as in conformers."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv1d(self.D, self.D, 7, groups=self.D)

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, attention_mask)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return ignore

    def ffn(self, x: Tensor) -> Tensor:
        before = nn.functional.pad(x.transpose(1, 2), (6, 0))
        return super().ffn(self.depthwise(before).transpose(1, 2))


class ExpertsOfRows(Plain):
    """How many rows an expert takes together depends on all items, and so does the order of its sums."""

    def __init__(self) -> None:
        torch.manual_seed(0)  # in one draw of six there is no rounding
        super().__init__()

    def make_ffn(self) -> None:
        self.router = nn.Linear(self.D, 8)
        networks = (nn.Sequential(nn.Linear(self.D, 64), nn.GELU(), nn.Linear(64, self.D)) for _ in range(8))
        self.experts = nn.ModuleList(networks)

    def ffn(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        weights, chosen = self.router(rows).softmax(-1).topk(2, -1)
        summed = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            if len(row):
                summed.index_add_(0, row, expert(rows[row]) * weights[row, place, None])
        return summed.view_as(x)


class LengthNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * self.normed(x)

    def normed(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class NormsOfOneFile(Plain):
    """The class of its norms stands in one file with it, and what calls it does not."""

    def norm(self) -> nn.Module:
        return LengthNorm(self.D)

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.norm1(self.attend(x, ignore))
        return x + self.norm2(self.ffn(x))


class OfPairs(Plain):
    """x has a fourth axis, and what stands beside it another."""

    def forward(self, x: Tensor, pairs: Tensor) -> Tensor:
        batch, sequence, depth, width = x.shape
        y = self.layer(x.transpose(1, 2).reshape(batch * depth, sequence, width))
        bias = pairs.reshape(batch, sequence, sequence).mean(-1)
        return y.reshape(batch, depth, sequence, width).transpose(1, 2) + bias[:, :, None, None]


class ConvolutionsAlone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Conv1d(16, 16, 3, padding=1), nn.GELU())])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


class MaskOfAMap(Plain):
    """Its padding lies as x does."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        sizes = x.shape[:-1]
        hidden = None if mask is None else mask.expand(sizes).flatten(1)
        return self.layer(x.flatten(1, 2), hidden).unflatten(1, sizes[1:])


class MaskSubtracted(PlainPost):
    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, attention_mask)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else -ignore


class MergedForAMapAlone(Plain):
    """Heads are put together without a transpose, which fails for x, and for a map of one row does not."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        sizes = *x.shape[:-1], self.H, self.D // self.H
        q, k, v = (each(x).view(sizes).transpose(1, 2) for each in (self.q, self.k, self.v))
        made = ((q @ k.transpose(-1, -2)).softmax(-1) @ v).permute(0, 2, 1, *range(3, q.ndim))
        return self.o(made.transpose(1, 2).reshape(*made.shape[:1], *made.shape[2:-1], self.D).view(x.shape))


class MaskIgnored(Plain):
    def forward(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
    ) -> Tensor:
        return self.layer(x)


class MaskAddedOverQueries(MaskSubtracted):
    """A large number takes the weights of all other queries."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return (scores if ignore is None else scores + ignore).softmax(-2) @ v


class LacksItsNetwork(nn.Module):
    """Its own call fails behind its attention, in which a norm and four maps stand, as in a layer for one kind of input
    that is called with another."""

    class Attention(Plain):
        def make_ffn(self) -> None:
            self.norm3 = self.norm()

        def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
            return self.norm3(self.norm2(self.norm1(x + self.attend(x, ignore))))

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.of_queries = self.Attention(), nn.Linear(16, 16)

    def forward(self, x: Tensor, padding: Tensor | None = None, queries: int = 0) -> Tensor:
        x = self.attention(x, padding)
        return self.of_queries(x) if queries else self.of_text(x)


class TurnedByTheirTables(Plain):
    """Neighbours rotate by cosines and sines that it is given, each of which stands at both of them, as in GLM."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = (each.unsqueeze(1).to(q.dtype) for each in self.tables)

        def turned(t: Tensor) -> Tensor:
            return t * cos + torch.stack((-t[..., 1::2], t[..., 0::2]), -1).flatten(-2) * sin

        return turned(q), turned(k)

    def forward(self, x: Tensor, position_embeddings: tuple[Tensor, Tensor], padding: Tensor | None = None) -> Tensor:
        self.tables = position_embeddings
        return self.layer(x, padding)


class ExpertsAlone(nn.Module):
    """Rows of all items are multiplied in groups, by expert, which rounds them otherwise as the groups are."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(64, 8, bias=False)
        self.up, self.down = nn.Parameter(torch.randn(8, 64, 512) / 8), nn.Parameter(torch.randn(8, 512, 64) / 8)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        weights, chosen = self.router(rows).softmax(-1).topk(2, -1)
        summed = torch.zeros_like(rows)
        for expert in range(8):
            row, place = torch.where(chosen == expert)
            made = torch.nn.functional.silu(rows[row] @ self.up[expert]) @ self.down[expert]
            summed = summed.index_add(0, row, made * weights[row, place, None])
        return summed.view_as(x)
