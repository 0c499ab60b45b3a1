"""Layers of which a thing more is done than a layer of the specification does, as blocks of public repositories do."""

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor, nn
from torch.nn import functional as F


class Excited(Plain):
    """Each feature is multiplied by a gate that is computed of its mean over the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Linear(self.D, 4), nn.Linear(4, self.D)

    def ffn(self, x: Tensor) -> Tensor:
        y = super().ffn(x)
        pooled = y.mean(1, keepdim=True)  # here
        return y * torch.sigmoid(self.excite(torch.relu(self.squeeze(pooled))))


class WithTheLargest(PlainPost):
    """The largest of each feature over the positions is added."""

    def ffn(self, x: Tensor) -> Tensor:
        y = super().ffn(x)
        return y + y.amax(1, keepdim=True)


class NormedOverPositions(Plain):
    def norm(self) -> nn.Module:
        return _OverPositions(self.D)


class _OverPositions(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(1, keepdim=True)
        return self.weight * centred / torch.sqrt(centred.square().mean(1, keepdim=True) + 1e-5) + self.bias


class Skewed(Plain):
    """Queries are multiplied with a vector for each distance, and the products shifted by padding and reshaping."""

    def __init__(self) -> None:
        super().__init__()
        self.distances = nn.Parameter(torch.randn(512, self.D // self.H))

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        b, h, n, _ = q.shape
        by_distance = q @ self.distances[512 - n :].T
        shifted = nn.functional.pad(by_distance, (1, 0)).reshape(b, h, n + 1, n)[:, :, 1:]
        scores, bias = (q @ k.transpose(-1, -2) + shifted) / q.shape[-1] ** 0.5, self.bias(n, ignore)
        return (scores if bias is None else scores + bias).softmax(-1) @ v


class MasksOfThreeForms(PlainPost):
    """Numbers for each item and head are added to its scores, others for all items, and keys are hidden."""

    def forward(
        self,
        x: Tensor,
        self_attn_bias: Tensor | None = None,
        self_attn_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
    ) -> Tensor:
        self.added = self_attn_bias, self_attn_mask
        return self.layer(x, key_padding_mask)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        padding = super().bias(n, ignore)
        given = [each for each in (*self.added, padding) if each is not None]
        return sum(given[1:], given[0]) if given else None


class GivesEachLayer(nn.Module):
    """A stack that gives what each of its layers gives, in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([PlainPost(), PlainPost()])

    def forward(self, x: Tensor, padding: Tensor | None = None) -> list[Tensor]:
        given = []
        for layer in self.layers:
            x = layer(x, padding)
            given.append(x)
        return given


class OfValuesKeysAndQueries(PlainPost):
    """What its owner gives three times over, the values first."""

    def forward(self, values: Tensor, keys: Tensor, queries: Tensor, mask: Tensor | None) -> Tensor:  # type: ignore[override]
        q, k, v = self.split(self.q(queries)), self.split(self.k(keys)), self.split(self.v(values))
        scores = torch.einsum("nhqd,nhkd->nhqk", [q, k])
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e20)
        context = torch.einsum("nhql,nhld->nhqd", [torch.softmax(scores / q.shape[-1] ** 0.5, dim=3), v])
        x = self.norm1(self.o(context.transpose(1, 2).flatten(2)) + queries)
        return self.norm2(self.ffn(x) + x)


class AttendsToASource(PlainPost):
    """What its owner gives x again for in half of the layers, and another sequence in the others."""

    def forward(self, x: Tensor, source: Tensor, source_mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        q, k, v = self.split(self.q(x)), self.split(self.k(source)), self.split(self.v(source))
        message = self.core(q, k, v, None if source_mask is None else ~source_mask)
        x = self.norm1(x + self.o(message.transpose(1, 2).flatten(2)))
        return self.norm2(x + self.ffn(x))


class ReadsBothSideBySide(Plain):
    """The feed-forward network reads x and what attention gives, one behind the other."""

    def make_ffn(self) -> None:
        self.up, self.down = nn.Linear(2 * self.D, self.HIDDEN), nn.Linear(self.HIDDEN, self.D)

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        message = self.norm1(self.attend(x, ignore))
        return x + self.norm2(self.ffn(torch.cat([x, message], -1)))


class HeadsSummed(Plain):
    """Each head has an output map of its own, and what they make is summed; one bias is for all."""

    def __init__(self) -> None:
        super().__init__()
        d = self.D // self.H
        del self.q, self.k, self.v, self.o
        self.heads = nn.ModuleList(nn.ModuleList(nn.Linear(self.D, d) for _ in range(3)) for _ in range(self.H))
        self.outs = nn.ModuleList(nn.Linear(d, self.D, bias=at == 0) for at in range(self.H))

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        bias = None if ignore is None else torch.where(ignore[:, None, :], -torch.inf, 0.0).to(x.dtype)
        given = []
        for (q, k, v), out in zip(self.heads, self.outs, strict=True):
            scores = q(x) @ k(x).transpose(1, 2) / (self.D // self.H) ** 0.5
            given.append(out((scores if bias is None else scores + bias).softmax(-1) @ v(x)))
        return sum(given[1:], given[0])


class ItemByItem(PlainPost):
    """A loop goes over the items of a batch."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        masks = [None] * len(x) if ignore is None else ignore[:, None]
        return torch.cat([Plain.attend(self, item[None], mask) for item, mask in zip(x, masks, strict=True)])


class NetworkInChunks(Plain):
    """The feed-forward network is computed for two positions at a time."""

    def ffn(self, x: Tensor) -> Tensor:
        return torch.cat([Plain.ffn(self, part) for part in x.split(2, 1)], 1)


class MaskOfAllHeads(PlainPost):
    """A mask [batch · heads, sequence, sequence] is needed, as multi_head_attention_forward takes one."""

    def forward(self, x: Tensor, attn_mask: Tensor) -> Tensor:
        assert attn_mask.shape == (len(x) * self.H, x.shape[1], x.shape[1])
        self.given = attn_mask.unflatten(0, (len(x), self.H))
        return self.layer(x, attn_mask)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return torch.where(self.given, -torch.inf, 0.0)


class KeysOfFewerPlaces(Plain):
    """Keys and values are mapped to fewer positions, as in Linformer."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Linear(300, 4, bias=False)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        k, v = (F.linear(each.mT, self.places.weight[:, : each.shape[-2]]).mT for each in (k, v))
        return super().core(q, k, v, None)


class RecurrentNetwork(PlainPost):
    """Its feed-forward network goes from position to position, and its attention from item to item."""

    def make_ffn(self) -> None:
        self.up = nn.GRU(24, 24, batch_first=True)

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attend(x.transpose(0, 1), None).transpose(0, 1))
        return self.norm2(x + self.up(x)[0])


class _ShiftOfZeros(nn.Module):
    """Its shift is a buffer, as of who wants a norm without one."""

    beta: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(size))
        self.register_buffer("beta", torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return self.gamma * centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-5) + self.beta


class ShiftsOfZeros(Plain):
    def norm(self) -> nn.Module:
        return _ShiftOfZeros(self.D)


class MapOfNothing(PlainPost):
    """A map whose size is that of an option, which is off: it holds no number."""

    def __init__(self) -> None:
        super().__init__()
        self.times = nn.Linear(0, 0)


class ConvolvedAcrossPositions(Plain):
    """Its positions are the channels of a convolution along the features, so that it takes 30 of them, as AttnSleep."""

    def __init__(self) -> None:
        super().__init__()
        self.across = nn.Conv1d(30, 30, 3, padding=1)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.layer(self.across(x), padding)  # here


class GatedSkips(Plain):
    """Gates stand in the place of residual sums, as of a gated recurrent unit, in GTrXL."""

    def __init__(self) -> None:
        super().__init__()
        self.of_skip, self.of_branch = (nn.Linear(self.D, 3 * self.D, bias=False) for _ in range(2))

    def gated(self, x: Tensor, y: Tensor) -> Tensor:
        (r, z, h), (u, v, w) = self.of_branch(y).chunk(3, -1), self.of_skip(x).chunk(3, -1)
        update = torch.sigmoid(z + v - 2.0)
        return (1 - update) * x + update * torch.tanh(h + torch.sigmoid(r + u) * w)

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.gated(x, torch.relu(self.attend(self.norm1(x), ignore)))
        return self.gated(x, torch.relu(self.ffn(self.norm2(x))))


class HeadsMergedInPlace(PlainPost):
    """What heads give is read as it lies, without a transpose, and no map follows."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        return self.core(q, k, v, ignore).contiguous().view(x.shape)


class OneQuery(Plain):
    """The first position alone is a query, and its scores are sums of products of elements, as in CaiT and XCiT."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = (q[:, :, :1] * k).sum(-1) / q.shape[-1] ** 0.5
        first = (scores.softmax(-1).unsqueeze(2) @ v).transpose(1, 2).flatten(2)
        return torch.cat([self.o(first), x[:, 1:]], 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class OneQueryOfOneMap(OneQuery):
    """The same, of one map for query, key and value."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(self.D, 3 * self.D)
        self.q = self.k = self.v = nn.Identity()  # type: ignore[assignment]

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = (self.split(each) for each in self.qkv(x).chunk(3, -1))
        scores = (q[:, :, :1] * k).sum(-1) / q.shape[-1] ** 0.5
        first = (scores.softmax(-1).unsqueeze(2) @ v).transpose(1, 2).flatten(2)
        return torch.cat([self.o(first), x[:, 1:]], 1)


class KeysForValues(PlainPost):
    """Its weights meet keys and not values, and its norms have an epsilon that no published encoder has."""

    def norm(self) -> nn.Module:
        return nn.LayerNorm(self.D, eps=1e-6)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k = self.split(self.q(x)), self.split(self.k(x))
        return self.o(self.core(q, k, k, ignore).transpose(1, 2).flatten(2))
