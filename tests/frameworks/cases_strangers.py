"""Layers as strangers write them, of which one thing is not as in the classic one."""

import torch
from cases_attention import Rope
from cases_plain import Plain, PlainPost
from torch import Tensor, nn
from torch.nn import functional as F

# ------------------------------------------------------------------------------- norms by length


class ByLength(nn.Module):
    """A row is divided by its length, or by a small number where that is larger."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1) * x.shape[-1] ** 0.5


class NormsByLength(Plain):
    def norm(self) -> nn.Module:
        return ByLength()


class _WithoutEpsilon(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0) * self.weight + self.bias


class NormsWithoutEpsilon(Plain):
    """They add none at all."""

    def norm(self) -> nn.Module:
        return _WithoutEpsilon(self.D)


class NormsGivenNoEpsilon(Plain):
    """Theirs is that of the format of x, and so another in float64."""

    def norm(self) -> nn.Module:
        return nn.RMSNorm(self.D)


class _Shifted(nn.RMSNorm):
    def __init__(self, size: int) -> None:
        super().__init__(size, eps=1e-6)
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.bias


class NormsByTheRootAndShifted(Plain):
    """RMSNorm that adds a vector, as a LayerNorm does."""

    def norm(self) -> nn.Module:
        return _Shifted(self.D)


class QueriesByLength(NormsByLength):
    """Queries and keys are of length 1, and scores multiplied by a number that was chosen."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(q, dim=-1) * (10 * q.shape[-1] ** 0.5), F.normalize(k, dim=-1)


class QueriesByLengthAlone(Plain):
    """Their norm has another epsilon than the layer's."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(q, dim=-1), F.normalize(k, dim=-1)


# ------------------------------------------------------------------------------- what an exporter takes apart


class HandNormAndRope(Rope):
    """An exporter that simplifies loses the epsilon, and one that does not splits the halves into a sequence."""

    def norm(self) -> nn.Module:
        return _HandNorm(self.D)


class _HandNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return self.weight * (centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-12)) + self.bias


class TruthsAdded(Plain):
    """A mask of truths is cast to 0 and 1, and added."""

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, attn_mask)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else ignore.to(self.o.weight.dtype)


# ------------------------------------------------------------------------------- what no layer of the language has


class BranchNorms(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.norm1(self.attend(x, ignore))
        return x + self.norm2(self.ffn(x))


class ScaledSkip(PlainPost):
    alpha = 1.5

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.norm1(x * self.alpha + self.attend(x, ignore))
        return self.norm2(x * self.alpha + self.ffn(x))


class SkipTwice(ScaledSkip):
    alpha = 2.0


class NormInNetwork(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LayerNorm(self.HIDDEN)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(self.inner(F.gelu(self.up(x))))


class GainOfEachHead(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(self.H, 1, self.D // self.H))

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.gain * F.normalize(q, dim=-1), self.gain * F.normalize(k, dim=-1)


class ParallelOfOneMap(Plain):
    """The network and the projections are of one map, as in the largest vision transformers."""

    def make_ffn(self) -> None:
        self.every, self.down = nn.Linear(self.D, self.HIDDEN + 3 * self.D), nn.Linear(self.HIDDEN, self.D)

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        hidden, q, k, v = self.every(self.norm1(x)).split([self.HIDDEN, self.D, self.D, self.D], -1)
        q, k, v = (self.split(each) for each in (q, k, v))
        return x + self.o(self.core(q, k, v, ignore).transpose(1, 2).flatten(2)) + self.down(F.gelu(hidden))


class Modulated(Plain):
    """Gains and shifts are of a condition, a vector for each item."""

    def __init__(self) -> None:
        super().__init__()
        self.of_condition = nn.Linear(self.D, 4 * self.D)

    def norm(self) -> nn.Module:
        return nn.LayerNorm(self.D, elementwise_affine=False)

    def forward(self, x: Tensor, c: Tensor) -> Tensor:  # type: ignore[override]
        gain1, shift1, gain2, shift2 = self.of_condition(F.silu(c))[:, None].chunk(4, -1)
        x = x + self.attend(self.norm1(x) * (1 + gain1) + shift1, None)
        return x + self.ffn(self.norm2(x) * (1 + gain2) + shift2)


class InBlocks(Plain):
    """Attention within blocks of 4 of 16 positions, which are as many as the features."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.attend(self.norm1(x).reshape(-1, 4, self.D), None).view(-1, 16, self.D)
        return x + self.ffn(self.norm2(x))


class TableOfPlaces(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(1, self.H, 512, 512))

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        padding = super().bias(n, ignore)
        return self.table[:, :, :n, :n] if padding is None else self.table[:, :, :n, :n] + padding


class Branches(nn.Module):
    """The sum of what several give: with two norms and four matrices no layer, though it may look like one."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        return sum((part(x) for part in self.parts), torch.zeros_like(x))


class Attending(Plain):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.attend(self.norm1(x), None)


class Feeding(Plain):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.ffn(self.norm2(x))


class TwoOfEach(Plain):
    """Two of attention beside each other, and then two networks, with norms and weights of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.attending, self.feeding = Attending(), Feeding()

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.attend(self.norm1(x), ignore) + self.attending(x)
        return x + self.ffn(self.norm2(x)) + self.feeding(x)


class InBranches(nn.Module):
    """Layers whose parts are such sums, and that are called by no name."""

    def __init__(self) -> None:
        super().__init__()
        made = [Branches(Attending(), Attending()), Branches(Feeding(), Feeding())]
        self.layers = nn.ModuleList([nn.ModuleList(made)])

    def forward(self, x: Tensor) -> Tensor:
        for attend, feed in self.layers:  # type: ignore[misc]
            x = x + attend(x)
            x = x + feed(x)
        return x


class HiddenFromItself(Plain):
    """No position attends to itself."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return torch.zeros(n, n).masked_fill(torch.eye(n, dtype=torch.bool), -1e30)


class SkipsNormed(Plain):
    """What skips is normed, too, as by BLOOM's apply_residual_connection_post_layernorm."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.norm1(x)
        x = self.norm2(x + self.attend(x, ignore))
        return x + self.ffn(x)


class FirstSkipNormed(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.norm1(x)
        x = x + self.attend(x, ignore)
        return x + self.ffn(self.norm2(x))


class SecondSkipNormed(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.norm2(x + self.attend(self.norm1(x), ignore))
        return x + self.ffn(x)


class NormedFirst(PlainPost):
    """A norm as behind an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LayerNorm(self.D)

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return super().layer(self.first(x), ignore)


class CosineAttention(Plain):
    """Each head has a scale of its own, as in Swin v2."""

    def __init__(self) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.log(10 * torch.ones(self.H, 1, 1)))

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-1, -2)
        scores, bias = scores * self.logit_scale.exp(), self.bias(k.shape[2], ignore)
        return (scores if bias is None else scores + bias).softmax(-1) @ v


class SigmoidAttention(Plain):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return torch.sigmoid(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5) @ v


class SoftmaxWithSink(Plain):
    """One column of scores more, which no key has."""

    def __init__(self) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.zeros(self.H, 1, 1))

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        sunk = torch.cat([scores, self.sink.expand(*scores.shape[:3], 1)], -1)
        return sunk.softmax(-1)[..., :-1] @ v


class LatentKeys(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.latent, self.k, self.v = nn.Linear(self.D, 8), nn.Linear(8, self.D), nn.Linear(8, self.D)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        latent = self.latent(x)
        q, k, v = self.split(self.q(x)), self.split(self.k(latent)), self.split(self.v(latent))
        return self.o(self.core(q, k, v, ignore).transpose(1, 2).flatten(2))


class GatedAttention(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(self.D, self.D)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return super().attend(x, ignore) * torch.sigmoid(self.gate(x))


class NoNorms(Plain):
    def norm(self) -> nn.Module:
        return nn.Identity()


class NormOfABatchInTraining(Plain):
    def norm(self) -> nn.Module:
        return OfABatch(self.D)


class OfABatch(nn.BatchNorm1d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.transpose(1, 2)).transpose(1, 2)


class AddedAndConvolved(Plain):
    """Numbers of its own are added to queries, as in Transformer-XL, and there is a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.added = nn.Parameter(torch.randn(self.H, 1, self.D // self.H))
        self.between = nn.Conv1d(self.D, self.D, 3, padding=1, groups=self.D)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q + self.added, k

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return super().layer(x + self.between(x.transpose(1, 2)).transpose(1, 2), ignore)


# ------------------------------------------------------------------------------- mistakes


class SoftmaxOverQueries(Plain):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.layer(x, mask)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if ignore is not None:
            scores = scores.masked_fill(ignore[:, None] == 0, -1e9)
        return scores.softmax(-2) @ v


class MergedByReshape(Plain):
    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        return self.o(self.core(q, k, v, ignore).reshape(x.shape))


# ------------------------------------------------------------------------------- what is called otherwise


class ScaleOfANumber(Plain):
    """The scale of the scores is a parameter that is a number by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(-1.0))

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, bias = q @ k.transpose(-1, -2) * self.temperature.exp(), self.bias(k.shape[2], ignore)
        return (scores if bias is None else scores + bias.to(scores.dtype)).softmax(-1) @ v


class ScaleAsItShouldBe(Plain):
    """The scale of the scores is a number that is held as a parameter, and is the usual one."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor((self.D // self.H) ** -0.5), requires_grad=False)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, bias = q @ k.transpose(-1, -2) * self.scale, self.bias(k.shape[2], ignore)
        return (scores if bias is None else scores + bias.to(scores.dtype)).softmax(-1) @ v


class MaskWithItemsLast(Plain):
    """A mask [query, key, batch]."""

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, attn_mask)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else torch.where(ignore.permute(2, 0, 1)[:, None], -torch.inf, 0.0)


class WithoutPadding(PlainPost):
    """What goes through its maps are the positions that are no padding, in one row."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        if ignore is None:
            return super().layer(x)
        kept = (~ignore).flatten().nonzero().squeeze(1)

        def back(rows: Tensor) -> Tensor:
            return rows.new_zeros(x.shape[0] * x.shape[1], self.D).index_copy(0, kept, rows).view(x.shape)

        rows = x.flatten(0, 1)[kept]
        q, k, v = (self.split(back(each(rows))) for each in (self.q, self.k, self.v))
        together = self.core(q, k, v, ignore).transpose(1, 2).flatten(2)
        rows = self.norm1(rows + self.o(together.flatten(0, 1)[kept]))
        return back(self.norm2(rows + self.ffn(rows)))


class SortedByLength(PlainPost):
    """The longest item stands first inside, and where it stood outside."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        if ignore is None:
            return super().layer(x)
        order = (~ignore).sum(1).argsort(descending=True, stable=True)
        return super().layer(x[order], ignore[order])[order.argsort()]


class OfFivePositions(PlainPost):
    """As many as a probe has."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        if x.shape[1] != 5:
            raise ValueError("five columns")
        return super().forward(x, padding)


class OfThreeItems(PlainPost):
    """As many as a probe has."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        if len(x) % 3:
            raise ValueError("three frames")
        return super().forward(x, padding)


class Chunked(PlainPost):
    """Eight items at a time."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        masks = [None] * len(x) if padding is None else padding.split(8)
        return torch.cat([self.layer(*each) for each in zip(x.split(8), masks, strict=False)])


class FilledUp(PlainPost):
    """Its sequence is filled up to a multiple of 64, and cut again."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        B, S, _ = x.shape
        ignored = torch.zeros(B, S, dtype=torch.bool) if padding is None else padding
        return self.layer(F.pad(x, (0, 0, 0, -S % 64)), F.pad(ignored, (0, -S % 64), value=True))[:, :S]


class HeadsInALoop(Plain):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        heads = [super(HeadsInALoop, self).core(*(each[:, h, None] for each in (q, k, v)), ignore) for h in range(2)]
        return torch.cat(heads, 1)


class Head(nn.Module):
    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(features, width, bias=False) for _ in range(3))

    def maps(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.query(x), self.key(x), self.value(x)

    def forward(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.maps(x)
        scores = q @ k.mT * k.shape[-1] ** -0.5
        return (scores if ignore is None else scores.masked_fill(ignore[:, None], -torch.inf)).softmax(-1) @ v


class OfQueriesAndKeysExchanged(Head):
    def maps(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.key(x), self.query(x), self.value(x)


class OfThreeAxes(Head):
    def forward(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return F.scaled_dot_product_attention(*self.maps(x), None if ignore is None else ~ignore[:, None])


class HeadByHead(Plain):
    """Each head is a module."""

    kind: type[Head] = Head

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(self.kind(self.D, self.D // self.H) for _ in range(self.H))
        del self.q, self.k, self.v

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return self.o(torch.cat([head(x, ignore) for head in self.heads], -1))


class HeadByHeadExchanged(HeadByHead):
    kind = OfQueriesAndKeysExchanged


class OfKeysInPlaceOfValues(Head):
    def maps(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.query(x), self.key(x), self.key(x)


class HeadByHeadOfKeysAlone(HeadByHead):
    kind = OfKeysInPlaceOfValues


class HeadByHeadFused(HeadByHead):
    kind = OfThreeAxes


class OfTheNext(Head):
    """A causal mask that is shifted by one."""

    def forward(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.maps(x)
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(1)
        return (q @ k.mT * k.shape[-1] ** -0.5).masked_fill(~seen, -torch.inf).softmax(-1) @ v


class HeadByHeadOfTheNext(HeadByHead):
    kind = OfTheNext

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class QueriesHeadByHead(Plain):
    """Each head of queries has a map, and all share one head of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        width = self.D // self.H
        self.k, self.v = nn.Linear(self.D, width), nn.Linear(self.D, width)
        self.queries = nn.ModuleList(nn.Linear(self.D, width) for _ in range(self.H))
        del self.q

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        k, v, bias = self.k(x), self.v(x), self.bias(x.shape[1], ignore)
        added = 0.0 if bias is None else bias[:, 0]
        each = [(query(x) @ k.mT / k.shape[-1] ** 0.5 + added).softmax(-1) @ v for query in self.queries]
        return self.o(torch.cat(each, -1))


class Pooled(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return super().forward(x, padding).mean(1)


class MergedByReshapeOfEachHeadsThree(Plain):
    """Query, key and value of each head lie together in one map, and heads are put together without a transpose."""

    def __init__(self) -> None:
        super().__init__()
        del self.q, self.k, self.v
        self.qkv = nn.Linear(self.D, 3 * self.D)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (self.H, -1)).transpose(1, 2).chunk(3, dim=-1)
        return self.o(self.core(q, k, v, ignore).reshape(x.shape))

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)
