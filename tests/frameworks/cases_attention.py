"""What attention computes in layers of today: each feature alone, and two other ways to write it."""

import math

import torch
from cases_plain import RMS, Plain, PlainPost
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

# ------------------------------------------------------------------------------- rotation


def _angles(n: int, size: int, theta: float, dtype: torch.dtype) -> Tensor:
    return torch.arange(n, dtype=dtype)[:, None] * theta ** (-torch.arange(0, size, 2, dtype=dtype) / size)


def _halves(t: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = t.chunk(2, -1)
    return t * cos + torch.cat((-second, first), -1) * sin


class Rope(Plain):
    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        angles = _angles(q.shape[2], q.shape[3], 10000.0, q.dtype).repeat(1, 2)
        return _halves(q, angles.cos(), angles.sin()), _halves(k, angles.cos(), angles.sin())


class RopeOfPairs(PlainPost):
    """Neighbours rotate, each with the one beside it."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        angles = _angles(q.shape[2], q.shape[3], 10000.0, q.dtype)
        cos, sin = angles.cos(), angles.sin()

        def turned(t: Tensor) -> Tensor:
            a, b = t[..., 0::2], t[..., 1::2]
            return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

        return turned(q), turned(k)


class RopeOfComplexNumbers(Plain):
    """As LLaMA's code has it: the turns are complex numbers in a buffer, made once in float32."""

    def __init__(self) -> None:
        super().__init__()
        angles = _angles(512, 8, 10000.0, torch.float32)
        self.register_buffer("freqs_cis", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        turns = self.freqs_cis[: q.shape[2]][None, None]

        def turned(t: Tensor) -> Tensor:
            return torch.view_as_real(torch.view_as_complex(t.unflatten(-1, (-1, 2)).contiguous()) * turns).flatten(-2)

        return turned(q), turned(k)


class RopeOfComplexNumbersMadeHere(PlainPost):
    """The turns are made in each call, in the format of x."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        angles = _angles(q.shape[2], q.shape[3], 10000.0, q.dtype)
        turns = torch.polar(torch.ones_like(angles), angles).unsqueeze(0).unsqueeze(0)

        def turned(t: Tensor) -> Tensor:
            return torch.view_as_real(torch.view_as_complex(t.unflatten(-1, (-1, 2)).contiguous()) * turns).flatten(-2)

        return turned(q), turned(k)


def _matrices(n: int, size: int, dtype: torch.dtype) -> Tensor:
    """[n, size / 2, 2, 2]: one that turns each pair, at each position."""
    angles = _angles(n, size, 10000.0, dtype)
    rows = angles.cos(), -angles.sin(), angles.sin(), angles.cos()
    return torch.stack(rows, -1).unflatten(-1, (2, 2))


class RopeOfMatrices(PlainPost):
    def turned(self, t: Tensor) -> Tensor:
        pairs = t.unflatten(-1, (-1, 2)).unsqueeze(-1)
        return (_matrices(t.shape[2], t.shape[3], t.dtype) @ pairs).reshape(t.shape)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.turned(q), self.turned(k)


class RopeOfWholeMatrices(RopeOfMatrices):
    """A matrix of the whole head for each position, by einsum."""

    def turned(self, t: Tensor) -> Tensor:
        of_pairs = _matrices(t.shape[2], t.shape[3], t.dtype)
        whole = torch.stack([torch.block_diag(*pairs) for pairs in of_pairs])
        return torch.einsum("bhsj,sij->bhsi", t, whole)


class RopeByASignedPermutation(RopeOfMatrices):
    """(x, y) becomes (−y, x) by a matrix, which sine is put to."""

    def turned(self, t: Tensor) -> Tensor:
        angles = _angles(t.shape[2], t.shape[3], 10000.0, t.dtype).repeat(1, 2)
        half = torch.eye(t.shape[3] // 2, dtype=t.dtype)
        none = torch.zeros_like(half)
        across = torch.cat((torch.cat((none, half), 1), torch.cat((-half, none), 1)))
        return t * angles.cos() + t @ across * angles.sin()


def _turned_by(t: Tensor, stacked: Tensor) -> Tensor:
    """Pairs that stand side by side, by cosines and sines that stand in a last axis."""
    pairs = t.unflatten(-1, (-1, 2))
    cos, sin = stacked.view(1, 1, pairs.shape[2], pairs.shape[3], 2).unbind(-1)
    a, b = pairs.unbind(-1)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)


class RopeOfACache(Plain):
    def forward(self, x: Tensor, rope_cache: Tensor) -> Tensor:  # type: ignore[override]
        self.cache = rope_cache
        return super().forward(x)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return _turned_by(q, self.cache), _turned_by(k, self.cache)


class RopeOfStackedTurns(RopeOfACache):
    """As gpt-fast's code has it."""

    def forward(self, x: Tensor, freqs_cis: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, freqs_cis)


class ValuesTurnedToo(RopeOfMatrices):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return super().core(q, k, self.turned(v), ignore)


class FlexAttention(Plain):
    """What hides a key is a function of its place, and a mask of blocks."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        blocks = None
        if ignore is not None:
            n = q.shape[2]
            blocks = create_block_mask(lambda b, h, i, j: ~ignore[b, j], len(q), None, n, n, device=q.device)
        return flex_attention(q, k, v, block_mask=blocks)


class FlexAttentionOfBlocks(Plain):
    """Its mask of blocks is made by its caller."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: object) -> Tensor:
        return flex_attention(q, k, v, block_mask=ignore)  # type: ignore[return-value,arg-type]

    def forward(self, x: Tensor, block_mask: BlockMask | None) -> Tensor:  # type: ignore[override]
        return self.layer(x, block_mask)  # type: ignore[arg-type]


class FlexAttentionOfAMask(Plain):
    """Its mask of blocks is made by its caller, and neither name nor annotation says so."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: object) -> Tensor:
        return flex_attention(q, k, v, block_mask=ignore)  # type: ignore[return-value,arg-type]

    def forward(self, x, mask):  # type: ignore[no-untyped-def,override]
        return self.layer(x, mask)


class RopeOfAPart(Plain):
    """The first half of each head rotates, by tables that are made once."""

    D, H = 32, 2

    def __init__(self) -> None:
        super().__init__()
        angles = _angles(512, 8, 500.0, torch.float64).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.cos[: q.shape[2]].to(q.dtype), self.sin[: q.shape[2]].to(q.dtype)
        q, k = (torch.cat((_halves(each[..., :8], cos, sin), each[..., 8:]), -1) for each in (q, k))
        return q, k


# ------------------------------------------------------------------------------- fewer heads of keys


class GQA(Plain):
    D, H = 32, 4

    def make_k(self) -> nn.Module:
        return nn.Linear(32, 16)


class OneHeadOfKeys(Plain):
    """The one head is broadcast, and never copied."""

    def make_k(self) -> nn.Module:
        return nn.Linear(16, 8)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, bias = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, self.bias(k.shape[2], ignore)
        return (scores if bias is None else scores + bias).softmax(-1) @ v


class GroupsByEinsum(PlainPost):
    D, H = 24, 6

    def make_k(self) -> nn.Module:
        return nn.Linear(24, 8)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = torch.einsum("bgrqd,bgkd->bgrqk", q.unflatten(1, (2, 3)), k) / q.shape[-1] ** 0.5
        if ignore is not None:
            scores = scores.masked_fill(ignore[:, None, None, None, :], -torch.inf)
        return torch.einsum("bgrqk,bgkd->bgrqd", scores.softmax(-1), v).flatten(1, 2)


# ------------------------------------------------------------------------------- norms of query and key


class QKNorm(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.q_norm, self.k_norm = nn.LayerNorm(8), nn.LayerNorm(8)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.q_norm(q), self.k_norm(k)


class QKNormRMS(Rope):
    """By the root mean square, before a rotation."""

    def __init__(self) -> None:
        super().__init__()
        self.q_norm, self.k_norm = RMS(8), RMS(8)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return super().rotate(self.q_norm(q), self.k_norm(k))


class QKNormOfAllHeads(PlainPost):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Sequential(self.q, nn.LayerNorm(24)), nn.Sequential(self.k, nn.LayerNorm(24))


# ------------------------------------------------------------------------------- positions in the scores


class RelativeBias(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(15, self.H)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        i, padding = torch.arange(n), super().bias(n, ignore)
        of_pairs = self.table((i[None] - i[:, None]).clamp(-7, 7) + 7).permute(2, 0, 1)[None]
        return of_pairs if padding is None else of_pairs + padding


class RelativeBiasOfHeads(PlainPost):
    """A parameter [heads, 8] in place of an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(3, 8))

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        i, padding = torch.arange(n), super().bias(n, ignore)
        of_pairs = self.table[:, (i - i[:, None]).clamp(-4, 3) + 4]
        return of_pairs[None] if padding is None else of_pairs + padding


class ALiBi(Plain):
    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        i, padding = torch.arange(n), super().bias(n, ignore)
        slopes = 2.0 ** (-8.0 * torch.arange(1, self.H + 1) / self.H)
        of_pairs = -slopes[:, None, None] * (i[None] - i[:, None]).abs()
        return of_pairs[None] if padding is None else of_pairs + padding


class ALiBiSubtracted(Plain):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        n = k.shape[2]
        distance = (torch.arange(n)[None] - torch.arange(n)[:, None]).abs().to(q.dtype)
        slopes, padding = 2.0 ** (-8.0 * torch.arange(1, self.H + 1) / self.H), Plain.bias(self, n, ignore)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 - slopes[:, None, None].to(q.dtype) * distance
        return (scores if padding is None else scores + padding.to(q.dtype)).softmax(-1) @ v


class Window(Plain):
    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        i, padding = torch.arange(n), super().bias(n, ignore)
        far = torch.where((i[None] - i[:, None]).abs() > 2, -torch.inf, 0.0)[None, None]
        return far if padding is None else far + padding


class WindowOfTwoSides(PlainPost):
    """Three keys before, one behind, by triangles of ones."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        near = torch.ones(k.shape[2], k.shape[2], dtype=torch.bool).tril(1).triu(-3)
        attend = near if ignore is None else near & ~ignore[:, None, None, :]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=attend)


class WindowBehind(Plain):
    """Four keys before, none behind."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        i, padding = torch.arange(n), super().bias(n, ignore)
        back = i[:, None] - i
        far = torch.zeros(n, n).masked_fill((back < 0) | (back > 4), -torch.inf)
        return far[None, None] if padding is None else far + padding


# ------------------------------------------------------------------------------- heads of another width


class WideHeads(Plain):
    """Attention is 32 wide inside, and d_model 16."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(16, 32), nn.Linear(32, 16)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (2, 16)).transpose(1, 2)


class NarrowHeads(PlainPost):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(24, 12), nn.Linear(24, 12), nn.Linear(24, 12), nn.Linear(12, 24)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (3, 4)).transpose(1, 2)


class WideHeadsOfOneMap(Plain):
    def __init__(self) -> None:
        super().__init__()
        del self.q, self.k, self.v
        self.qkv, self.o = nn.Linear(16, 72, bias=False), nn.Linear(24, 16)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 12)).permute(2, 0, 3, 1, 4)
        return self.o(self.core(q, k, v, ignore).transpose(1, 2).flatten(2))


class MapOfEachHeadInTurn(Plain):
    """One map of all heads' queries, and one of their keys, whose features alternate with those of value."""

    def __init__(self) -> None:
        super().__init__()
        del self.q, self.k, self.v
        self.qkv, self.of_queries, self.of_keys = nn.Linear(16, 48), nn.Linear(8, 8), nn.Linear(8, 8)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (2, 8, 3)).permute(4, 0, 2, 1, 3)
        q, k = self.of_queries(torch.relu(q)), self.of_keys(torch.relu(k))
        return self.o(self.core(q, k, v, ignore).transpose(1, 2).flatten(2))


# ------------------------------------------------------------------------------- numbers in place of −∞


class Filled(Plain):
    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else ignore[:, None, None, :] * -1e9


class FilledByWhere(PlainPost):
    """−10000, in place of the scores."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if ignore is not None:
            scores = torch.where(ignore[:, None, None, :], -10000.0, scores)
        return scores.softmax(-1) @ v


class FilledWithLowest(Plain):
    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else ignore[:, None, None, :] * torch.finfo(torch.float32).min


class MaximumBeforeMask(Plain):
    """As BEATs' code has it: the largest score is taken off before the mask, and a gradient goes through it."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, bias = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, self.bias(k.shape[2], ignore)
        scores = scores - scores.max(-1, keepdim=True)[0]
        return (scores if bias is None else scores + bias.to(scores.dtype)).softmax(-1) @ v


class DividedBehind(Plain):
    """Exponentials weigh the values, and what they give is divided by their sum, as fused attention does."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if ignore is not None:
            scores = scores.masked_fill(ignore[:, None, None], float("-inf"))
        weights = torch.exp(scores - scores.amax(-1, keepdim=True))
        return weights @ v / weights.sum(-1, keepdim=True)


class OneMoreInTheSum(Plain):
    """softmax_one."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        weights = torch.exp(q @ k.mT / q.shape[-1] ** 0.5)
        return weights / (1 + weights.sum(-1, keepdim=True)) @ v
