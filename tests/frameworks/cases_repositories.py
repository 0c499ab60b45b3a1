"""Layers as public repositories have them: of speech, of images by diffusion, of homework."""

from typing import Any

import torch
from cases_attention import Rope
from cases_plain import Plain, PlainPost
from torch import Tensor, nn
from torch.nn import functional as F


class ToldOfTraining(PlainPost):
    """Whether it drops is an argument that it does not do without."""

    def forward(self, x: Tensor, mask: Tensor, training: bool) -> Tensor:
        heard = F.dropout(self.attend(x, None if mask is None else mask.bool()), 0.1, training)
        x = self.norm1(x + heard)
        return self.norm2(x + F.dropout(self.ffn(x), 0.1, training))


class TrainsUnlessTold(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None, training: bool = True) -> Tensor:
        x = x + F.dropout(self.attend(self.norm1(x), padding), 0.1, training)
        return x + self.ffn(self.norm2(x))


class Adaptive(Plain):
    """Gains and shifts of its norms are those of a time step."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(self.D, elementwise_affine=False) for _ in range(2))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(self.D, 4 * self.D))

    def of_numbers(self, x: Tensor, numbers: Tensor) -> Tensor:
        gain1, shift1, gain2, shift2 = self.modulation(numbers)[:, None].chunk(4, -1)
        x = x + self.attend(self.norm1(x) * (1 + gain1) + shift1, None)
        return x + self.ffn(self.norm2(x) * (1 + gain2) + shift2)


class AdaptiveOfContext(Adaptive):
    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        return self.of_numbers(x, context)


class AdaptiveOfTheLast(Adaptive):
    """c [batch, positions, d_model], of which the last position's are taken."""

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        return self.of_numbers(x, c[:, -1, :])


class AdaptiveOfNorms(Adaptive):
    """Its norms have gains and shifts of their own, too."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(self.D), nn.LayerNorm(self.D)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        return self.of_numbers(x, c)


class AttendsToContext(PlainPost):
    """The name of the last two, and another sequence."""

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(context)), self.split(self.v(context))
        x = self.norm1(x + self.o(self.core(q, k, v, None).transpose(1, 2).flatten(2)))
        return self.norm2(x + self.ffn(x))


class AttendsByShapes(AttendsToContext):
    """The other sequence has a default, and so have the sides of the maps that it is of: it does without neither."""

    def forward(self, x: Tensor, encoder_hidden_states: Tensor | None = None, shapes: Any = None) -> Tensor:
        assert encoder_hidden_states.shape[1] == sum(height * width for height, width in shapes)
        return super().forward(x, encoder_hidden_states)


class ReadsOffItsKeywords(PlainPost):
    """It needs what no name tells, and reads another off what it hands on."""

    def forward(self, x: Tensor, blocks: Tensor, **given: Tensor) -> Tensor:
        scaled = x + given["places"].to(x)
        return self.layer(torch.stack([scaled, *blocks.unbind(7)]).mean(0))


class KeepsRowsByAMask(PlainPost):
    """`non_pad_mask` [batch, sequence, 1], 1 = a row that is kept; `slf_mask` [batch, sequence, sequence]."""

    def forward(self, x: Tensor, non_pad_mask: Tensor | None = None, slf_mask: Tensor | None = None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if slf_mask is not None:
            scores = scores.masked_fill(slf_mask.bool()[:, None], -torch.inf)
        x = self.norm1(x + self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)))
        x *= non_pad_mask
        x = self.norm2(x + self.ffn(x))
        x *= non_pad_mask
        return x


class TurnedByPairsInTurn(Rope):
    """The turned half of each pair is written into a new tensor, one after the other."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        angle = torch.outer(torch.arange(q.shape[2]).to(q), 1e4 ** (-torch.arange(0, self.d, 2).to(q) / self.d))
        angle = angle.repeat_interleave(2, -1)
        return tuple(each * angle.cos() + self.across(each) * angle.sin() for each in (q, k))

    @property
    def d(self) -> int:
        return self.D // self.H

    def across(self, x: Tensor) -> Tensor:
        made = torch.empty_like(x)
        made[..., ::2] = -x[..., 1::2]
        made[..., 1::2] = x[..., ::2]
        return made


class TurnedWhereItStands(TurnedByPairsInTurn):
    """What is turned is written itself, first with the second halves; 500 in the place of 10000."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        angle = torch.outer(torch.arange(q.shape[2]).to(q), 500.0 ** (-torch.arange(0, self.d, 2).to(q) / self.d))
        return self.turned(q, angle.cos(), angle.sin()), self.turned(k, angle.cos(), angle.sin())

    def turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        one, other, made = x[..., : self.d // 2], x[..., self.d // 2 :], torch.zeros_like(x)
        made[..., self.d // 2 :] = other * cos + one * sin
        made[..., : self.d // 2] = one * cos - other * sin
        return made


class ScaledWhereItStands(PlainPost):
    """Queries are a part of one tensor with keys and values, which a scale is multiplied into."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        parts = torch.stack([self.split(each(x)) for each in (self.q, self.k, self.v)])
        q, k, v = parts[0], parts[1], parts[2]
        q *= (self.D // self.H) ** -0.5
        scores, bias = q @ k.mT, self.bias(x.shape[1], ignore)
        return self.o(((scores if bias is None else scores + bias).softmax(-1) @ v).transpose(1, 2).flatten(2))


class NotInFloat64(Plain):
    """Its softmax is in float32, whatever x is in, and nothing casts the weights back."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, bias = q @ k.mT / q.shape[-1] ** 0.5, self.bias(k.shape[2], ignore)
        return (scores if bias is None else scores + bias).softmax(-1, dtype=torch.float32) @ v


class OverwrittenInPart(Plain):
    """The first feature of what attention reads is another number."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        x = x.clone()
        x[..., :1] = x[..., 1:2] * 2
        return super().attend(x, ignore)


class NoMapOfHeads(Plain):
    """The heads' values are put side by side, and added to x so."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        return self.core(q, k, v, ignore).transpose(1, 2).flatten(2)


class NoMapOfHeadsPost(NoMapOfHeads):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attend(x, ignore))
        return self.norm2(x + self.ffn(x))


class OfARectangle(Plain):
    """Is given the two sides of the image that its positions are."""

    def forward(self, x: Tensor, x_size: tuple[int, int]) -> Tensor:
        height, width = x_size
        return self.layer(x.view(len(x), height, width, -1).flatten(1, 2))


class OfARectangleByItsSize(OfARectangle):
    def forward(self, x: Tensor, size: tuple[int, int]) -> Tensor:  # type: ignore[override]
        return super().forward(x, size)


class IdsOfSeveral(Plain):
    """A board: whose turn it is, rights and squares, each an id [batch, positions], and no part that is a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.turn, self.castling, self.square = (nn.Embedding(size, self.D) for size in (2, 2, 14))

    def forward(self, turns: Tensor, castling_rights: Tensor, board_positions: Tensor) -> Tensor:
        ids = (self.turn, turns), (self.castling, castling_rights), (self.square, board_positions)
        return self.layer(torch.cat([table(each) for table, each in ids], 1))


class OneTensorByManyNames(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.others = nn.ModuleList([self.k] * 5)


class LeakyOfPackedHeads(PlainPost):
    """Query, key and value of each head stand beside one another in one map."""

    def __init__(self) -> None:
        super().__init__()
        del self.q, self.k, self.v
        self.qkv = nn.Linear(self.D, 3 * self.D)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (self.H, -1)).transpose(1, 2).chunk(3, -1)
        return self.o(self.core(q, k, v, ignore).transpose(1, 2).flatten(2))

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.leaky_relu(self.up(x)))


class LastHeadOff(PlainPost):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, bias = q @ k.mT / q.shape[-1] ** 0.5, self.bias(k.shape[2], ignore)
        weights = (scores if bias is None else scores + bias).softmax(-1)
        return weights * torch.tensor([1.0, 1.0, 0.0])[:, None, None].to(weights) @ v


class HalfOfTheFirstHead(Plain):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, bias = q @ k.mT / q.shape[-1] ** 0.5, self.bias(k.shape[2], ignore)
        weights = (scores if bias is None else scores + bias).softmax(-1)
        return weights * torch.tensor([0.5, 1.0])[:, None, None].to(weights) @ v


class _Attention(nn.Module):
    def __init__(self, layer: Plain) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = layer.q, layer.k, layer.v, layer.o

    def forward(self, x: Tensor, key_padding: Tensor | None = None) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (2, 8)).transpose(1, 2) for each in (self.q, self.k, self.v))
        scores = q @ k.mT / 8**0.5
        if key_padding is not None:
            scores = scores.masked_fill(key_padding[:, None, :, None], -1e4)  # of queries
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class HandsItsMaskOn(Plain):
    """To a part, where it hides queries."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = _Attention(self)
        del self.q, self.k, self.v, self.o

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norm1(x), padding)
        return x + self.ffn(self.norm2(x))


class AttendsToACondition(AttendsToContext):
    def forward(self, x: Tensor, cond: Tensor) -> Tensor:
        return super().forward(x, cond)


class FirstKeyWritten(PlainPost):
    """No query attends to the first position, whose scores are written."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores[..., 0] = -1e9
        return scores.softmax(-1) @ v

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class NormedHeadByHead(Rope):
    """Queries and keys are normed with a gain and a shift for each head, and turned then."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(self.H, 1, self.D // self.H))
        self.shift = nn.Parameter(torch.zeros(self.H, 1, self.D // self.H))

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return super().rotate(*(F.layer_norm(each, each.shape[-1:]) * self.gain + self.shift for each in (q, k)))


class AnglesWhereHeadsAreNormed(Plain):
    """Most of its norms are of the features of a head, which is no width of x; and it needs what may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = self.norm1, self.norm2
        self.q_norm, self.k_norm = (nn.LayerNorm(self.D // self.H) for _ in range(2))
        del self.norm1, self.norm2

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.attend(self.first(x), ignore)
        return x + self.ffn(self.second(x))

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self._turned(self.q_norm(q)), self._turned(self.k_norm(k))

    def _turned(self, heads: Tensor) -> Tensor:
        one, other = heads.chunk(2, -1)
        return heads * self._cos + torch.cat((-other, one), -1) * self._sin

    def forward(  # type: ignore[override]
        self, x: Tensor, padding: Tensor | None = None, position_embeddings: Tensor | None = None
    ) -> Tensor:
        cos, sin = position_embeddings  # type: ignore[misc]
        self._cos, self._sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return self.layer(x, padding)


class NetworkOfOneMap(Plain):
    def make_ffn(self) -> None:
        self.one = nn.Linear(self.D, self.D)

    def ffn(self, x: Tensor) -> Tensor:
        return self.one(x)


class NetworkOfOneMapPost(PlainPost):
    def make_ffn(self) -> None:
        self.one = nn.Linear(self.D, self.D)

    def ffn(self, x: Tensor) -> Tensor:
        return self.one(x)


class Differential(Plain):
    """What attention gives is that of some heads, less that of the others."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        both = super().core(q, k, v, ignore), super().core(k, q, v, ignore)
        return both[0] - both[1]


class RowsAndColumnsByAType(Plain):
    """The default of what it needs is a type."""

    def forward(self, x: Tensor, feat_size: object = list[int]) -> Tensor:  # type: ignore[override]
        height, width = feat_size  # type: ignore[misc]
        return self.layer(x.unflatten(1, (height, width)).flatten(1, 2))


class NetworkOfTheBranch(Plain):
    """The network is given what attention gives alone: the sum has another name."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        y = self.attend(self.norm1(x), ignore)
        x = x + y
        return x + self.ffn(self.norm2(y))  # of attention


class NetworkOfTheBranchPost(PlainPost):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        y = self.attend(x, ignore)
        return self.norm2(self.norm1(x + y) + self.ffn(y))


class OneOfItsNorms(PlainPost):
    """One of its norms was given its epsilon, and the other was not."""

    def __init__(self) -> None:
        super().__init__()
        self.norm2.eps = 1e-12
