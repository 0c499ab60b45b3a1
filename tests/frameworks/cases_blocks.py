"""Blocks as public repositories have them: of patches on a phone, of proteins, of language models written by hand."""

import torch
from cases_attention import Rope
from cases_plain import Plain, PlainPost
from torch import Tensor, nn
from torch.nn import functional as F


class OfPatches(PlainPost):
    """x [batch, patches, pixels, d_model]: a pixel attends to those of its own patch."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        batch, patches, pixels, width = x.shape
        return self.layer(x.reshape(batch * patches, pixels, width)).reshape(batch, patches, pixels, width)


class AlongTime(PlainPost):
    """x [batch, time, places, d_model]: a place attends to itself at other times."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        batch, time, places, width = x.shape
        rows = x.transpose(1, 2).reshape(batch * places, time, width)
        return self.layer(rows).reshape(batch, places, time, width).transpose(1, 2)


class ScoresAsWeights(Plain):
    """Retention without its decay."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return torch.tril(q @ k.mT) @ v

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class ScoresAsWeightsByEinsum(ScoresAsWeights):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return torch.einsum("bhij,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, k), v)


class HeadsAttendToEachOther(PlainPost):
    """Heads are cut, and not put before positions."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = (each(x).unflatten(-1, (self.H, -1)) for each in (self.q, self.k, self.v))
        return self.o((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1).matmul(v).flatten(2))

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class ManyHeadsAttendToEachOther(HeadsAttendToEachOther):
    H = 6


class CausalMaskThrownAway(PlainPost):
    """As of `masked_fill_` without its underscore."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("later", torch.ones(512, 512).triu(1).bool())

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores.masked_fill(self.later[: q.shape[2], : q.shape[2]], -torch.inf)
        return scores.softmax(-1) @ v

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class WideWithDropout(ScoresAsWeights):
    """With so many kinks of ReLU near 0 that a step of any length but the shortest meets one."""

    D, H, HIDDEN = 384, 4, 1536

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(self.D, self.D, bias=False) for _ in range(4))
        self.dropout = nn.Dropout(0.2)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return self.dropout(super().attend(x, ignore))

    def ffn(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(F.relu(self.up(x))))


class NeedsAMaskOfAnotherName(PlainPost):
    """A part has the mask that it needs under the name of the other, which it does without."""

    def masked(self, x: Tensor, mask: Tensor) -> Tensor:
        mask = mask.repeat(self.H, 1, 1)
        q, k, v = (self.split(each(x)).transpose(0, 1).flatten(0, 1) for each in (self.q, self.k, self.v))
        heard = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(mask, -torch.inf).softmax(-1) @ v
        return self.o(heard.unflatten(0, (self.H, -1)).permute(1, 2, 0, 3).flatten(2))

    def forward(self, x: Tensor, mask: Tensor | None = None, slf_attn_mask: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.masked(x, mask=slf_attn_mask))
        if mask is not None:
            x = x.masked_fill(mask.unsqueeze(-1), 0)
        return self.norm2(x + self.ffn(x))


class ConvolutionsBesideAMask(NeedsAMaskOfAnotherName):
    """No layer is read, and the number of its heads is not known."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Conv1d(self.D, self.HIDDEN, 3, padding=1)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x.mT).mT))


class NoMapsOfHeads(PlainPost):
    """Heads are cut of x as it is."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        heads = self.split(x)
        return self.o(self.core(heads, heads, heads, ignore).transpose(1, 2).flatten(2))


class FromTheFirstPosition(Plain):
    """As LLaMA's code has it: the turns of all positions are in a buffer, of which those behind a number are taken."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(512.0), 1e4 ** (-torch.arange(0, 8, 2) / 8))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)
        self.start = 0

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        turns = self.turns[self.start : self.start + q.shape[2]]

        def turned(t: Tensor) -> Tensor:
            return torch.view_as_real(torch.view_as_complex(t.unflatten(-1, (-1, 2)).contiguous()) * turns).flatten(-2)

        return turned(q), turned(k)

    def forward(self, x: Tensor, start_pos, padding: Tensor | None = None) -> Tensor:  # type: ignore[no-untyped-def, override]
        self.start = start_pos
        return self.layer(x, padding)


class OfWhatIsDecoded(PlainPost):
    """The first argument is attended to, and there is a row of output for each position of the second."""

    def forward(self, heard: Tensor, spoken: Tensor) -> Tensor:  # type: ignore[override]
        q, k, v = self.split(self.q(spoken)), self.split(self.k(heard)), self.split(self.v(heard))
        x = self.norm1(spoken + self.o(self.core(q, k, v, None).transpose(1, 2).flatten(2)))
        return self.norm2(x + self.ffn(x))


class WeightsOfEachItem(PlainPost):
    """Maps of queries, keys and values are repeated for each item of the batch."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        def mapped(by: nn.Module) -> Tensor:
            return self.split(x @ by.weight.mT.repeat(len(x), 1, 1) + by.bias)

        q, k, v = map(mapped, (self.q, self.k, self.v))
        return self.o(self.core(q, k, v, ignore).transpose(1, 2).flatten(2))


class NeighboursInThePlaceOfAttention(PlainPost):
    """As PoolFormer: the mean of a position and of those beside it, less itself."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return F.avg_pool1d(x.mT, 3, stride=1, padding=1, count_include_pad=False).mT - x

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class CausalOfTurnedMaps(Plain):
    """As GPT-2's code has it: matrices [in, out], and queries, keys and values in one."""

    def __init__(self) -> None:
        super().__init__()
        self.packed = nn.Parameter(torch.randn(self.D, 3 * self.D) / 4)
        self.packed_bias = nn.Parameter(torch.zeros(3 * self.D))
        self.out, self.out_bias = nn.Parameter(torch.randn(self.D, self.D) / 4), nn.Parameter(torch.randn(self.D))
        del self.q, self.k, self.v, self.o

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = map(self.split, (x @ self.packed + self.packed_bias).chunk(3, -1))
        heard = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return heard.transpose(1, 2).flatten(2) @ self.out + self.out_bias

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class ScaleTurnedOver(PlainPost):
    """Scores are multiplied by the root of the size, and the heads of one matrix lie feature by feature."""

    def __init__(self) -> None:
        super().__init__()
        self.packed, self.o = nn.Linear(self.D, 3 * self.D, bias=False), nn.Linear(self.D, self.D, bias=False)
        del self.q, self.k, self.v

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        packed = self.packed(x).unflatten(-1, (self.D // self.H, 3, self.H)).movedim(-2, 0)
        q, k, v = packed.permute(0, 1, 4, 2, 3)
        weights = (q @ k.mT * (self.D // self.H) ** 0.5).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class SecondEpsilon(PlainPost):
    def __init__(self) -> None:
        super().__init__()
        self.norm2 = nn.LayerNorm(self.D, eps=1e-3)


class FirstMapForAll(Plain):
    """It is given a map of what each query sees for each item, and reads the first item's."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else torch.where(ignore[0], -1e9, 0.0)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        assert mask is None or mask.ndim == 3
        return self.layer(x, mask)


class HeadsCutByReshape(Plain):
    def split(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), self.H, x.shape[1], -1)


class HeadsTurnedAtTheEndAlone(PlainPost):
    """The transpose is missing where heads are cut, and stands where they are put together."""

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.H, -1))

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        return self.o(self.core(q, k, v, ignore).transpose(1, 2).reshape(x.shape))

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class SoftmaxOverHeads(Plain):
    """As torch.nn.functional.softmax does of four axes where no axis is named."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(1) @ v

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class SoftmaxOverItems(SoftmaxOverHeads):
    """As it does of three axes: [batch · heads, sequence, sequence]."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        rows, columns, values = (each.flatten(0, 1) for each in (q, k, v))
        weights = (torch.bmm(rows, columns.mT) / q.shape[-1] ** 0.5).softmax(0)
        return torch.bmm(weights, values).view_as(q)


class OutputWithoutItsBias(Plain):
    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        return F.linear(self.core(q, k, v, ignore).transpose(1, 2).flatten(2), self.o.weight)


class ValueBehindTheWeights(PlainPost):
    def __init__(self) -> None:
        super().__init__()
        self.w_vs, self.fc = self.v, self.o
        del self.v, self.o

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.fc(x))
        return self.w_vs(self.core(q, k, v, ignore).transpose(1, 2).flatten(2))


class SkipsBothBranches(PlainPost):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return self.norm2(x + self.ffn(self.norm1(x + self.attend(x, ignore))))


class SkipsBothBranchesPre(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return x + self.ffn(self.norm2(x + self.attend(self.norm1(x), ignore)))


class KeyNotTurned(Rope):
    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return super().rotate(q, k)[0], k


class OneSumAndAnotherEpsilon(PlainPost):
    """Three things are otherwise than in post-relu: the second sum, the epsilons, and the number that hides."""

    def norm(self) -> nn.Module:
        return nn.LayerNorm(self.D, eps=1e-6)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else torch.where(ignore[:, None, None, :], -1e9, 0.0)

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attend(x, ignore))
        return self.norm2(self.down(self.up(x).relu()))


class _ByChannels(PlainPost):
    """x [batch, d_model, sequence], whose maps are convolutions of kernel 1."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Conv1d(self.D, self.D, 1) for _ in range(4))

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (self.H, -1)).transpose(2, 3)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = (self.heads(each) for each in self.mapped(x.mT))
        return self.o(self.core(q, k, v, ignore).transpose(2, 3).flatten(1, 2)).mT

    def mapped(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.q(x), self.k(x), self.v(x)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.layer(x.mT, padding).mT


class ChannelsCutByView(_ByChannels):
    def heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], self.H, x.shape[2], -1)


class ValueOfTheKeysChannels(_ByChannels):
    def mapped(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.q(x), self.k(x), self.k(x)


class _Head(nn.Module):
    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(d_model, width, bias=False) for _ in range(3))

    def forward(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        scores = self.query(x) @ self.key(x).mT * self.key.out_features**-0.5
        if ignore is not None:
            scores = scores.masked_fill(ignore[:, None], -torch.inf)
        return scores.softmax(-1) @ self.value(x)


class HeadsByThemselves(Plain):
    """A module a head, as in lessons."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(_Head(self.D, self.D // self.H) for _ in range(self.H))
        del self.q, self.k, self.v

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return self.o(torch.cat([head(x, ignore) for head in self.heads], -1))


class HeadsByThemselvesWithoutASkip(HeadsByThemselves):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.attend(self.norm1(x), ignore)
        return x + self.ffn(self.norm2(x))


class OneHeadTwice(HeadsByThemselves):
    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return self.o(torch.cat([self.heads[0](x, ignore) for _ in self.heads], -1))


class HiddenBehindTheSoftmax(Plain):
    """What a mask hides is zero behind the softmax, whose sum has it still."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return (weights if ignore is None else weights.masked_fill(ignore[:, None, None, :], 0.0)) @ v

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.layer(x, mask)


class HiddenByAZero(HiddenBehindTheSoftmax):
    """Scores of 0 are no −∞."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return (scores if ignore is None else scores.masked_fill(ignore[:, None, None, :], 0.0)).softmax(-1) @ v


class FirstNormForgotten(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.attend(x, ignore)
        return x + self.ffn(self.norm2(x))


class FirstNormForgottenByName(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.network_norm = self.norm1, self.norm2
        del self.norm1, self.norm2

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.attend(x, ignore)
        return x + self.ffn(self.network_norm(x))


class BareBiasForgotten(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.wo, self.bo = nn.Parameter(torch.randn(self.D, self.D) / 4), nn.Parameter(torch.randn(self.D) / 4)
        self.o = nn.Identity()  # type: ignore[assignment]

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return super().attend(x, ignore) @ self.wo


class BareBiasOfALayerForgotten(Plain):
    """All layers' parameters stand side by side, by their numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_0_wo, self.layer_0_bo = (nn.Parameter(torch.randn(*size) / 4) for size in ((16, 16), (16,)))
        self.o = nn.Identity()  # type: ignore[assignment]

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return super().attend(x, ignore) @ self.layer_0_wo


class PadIgnored(Plain):
    def forward(self, x: Tensor, pad: Tensor | None = None) -> Tensor:
        return self.layer(x)


class PadHidesQueries(Plain):
    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else torch.where(ignore[:, None, :, None], -1e9, 0.0)

    def forward(self, x: Tensor, pad: Tensor | None = None) -> Tensor:
        return self.layer(x, pad)


class SoftmaxOverNrHeads(nn.Module):
    """Nothing but `nr_heads` says how many they are, where a softmax over them is no layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.nr_heads = 4
        self.q, self.k, self.v, self.combine = (nn.Linear(20, 20) for _ in range(4))
        self.up, self.down = nn.Linear(20, 48), nn.Linear(48, 20)
        self.norm1, self.norm2 = nn.LayerNorm(20), nn.LayerNorm(20)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (4, 5)).transpose(1, 2) for part in (self.q, self.k, self.v))
        weights = (q @ k.transpose(-1, -2) / 5**0.5).softmax(1)
        x = self.norm1(x + self.combine((weights @ v).transpose(1, 2).flatten(2)))
        return self.norm2(x + self.down(torch.relu(self.up(x))))
