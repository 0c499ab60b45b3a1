"""Layers of PyTorch as people have them, of two dozen kinds, right or with one bug in a step of attention or of the
sums: `conform check planted_kinds.py:made --arg kind=Rope --arg bug=residual-missing`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

D, H, FF = 16, 2, 24


class Plain(nn.Module):
    """A pre-norm layer, each of whose steps is a method; `bug` is planted where its comment says so."""

    width, heads_of_keys = D, H

    def __init__(self, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.norm1, self.norm2 = self.norm(), self.norm()
        narrow = self.heads_of_keys * self.width // H
        self.q_proj = nn.Linear(D, self.width)
        self.k_proj, self.v_proj = nn.Linear(D, narrow), nn.Linear(D, narrow)
        self.o_proj = nn.Linear(self.width, D)
        self.feed()

    def norm(self) -> nn.Module:
        return nn.LayerNorm(D)

    def feed(self) -> None:
        self.up, self.down = nn.Linear(D, FF), nn.Linear(FF, D)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))

    def projected(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if self.bug == "query-key-exchanged":
            q, k = self.k_proj(x), self.q_proj(x)
        if self.bug == "bias-dropped":
            v = F.linear(x, self.v_proj.weight)
        return q, k, v

    def heads(self, x: Tensor) -> Tensor:
        batch, positions, width = x.shape
        d = self.width // H
        if self.bug == "heads-not-transposed":
            return x.reshape(batch, width // d, positions, d)
        return x.reshape(batch, positions, width // d, d).transpose(1, 2)

    def rotated(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k

    def added(self, scores: Tensor) -> Tensor:
        return scores

    def hidden(self, scores: Tensor, ignore: Tensor) -> Tensor:
        if self.bug == "mask-inverted":
            ignore = ~ignore
        return scores.masked_fill(ignore[:, None, None, :], -torch.inf)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = map(self.heads, self.projected(x))
        q, k = self.rotated(q, k)
        if self.heads_of_keys != H:
            k, v = (each.repeat_interleave(H // self.heads_of_keys, 1) for each in (k, v))
        scores = self.added(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5)
        if ignore is not None:
            scores = self.hidden(scores, ignore)
        weights = scores.softmax(-1)
        if self.bug == "softmax-axis":
            weights = scores.softmax(-2)
        context = (weights @ v).transpose(1, 2).flatten(2)
        return self.o_proj(context)

    def first(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        attended = self.attend(self.norm1(x), ignore)
        if self.bug == "residual-missing":
            return attended
        return x + attended

    def second(self, x: Tensor) -> Tensor:
        return x + self.ffn(self.norm2(x))

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return self.second(self.first(x, ignore))

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Any:
        return self.layer(x, key_padding_mask)


class PostNorm(Plain):
    def first(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        attended = self.attend(x, ignore)
        if self.bug == "residual-missing":
            return self.norm1(attended)
        return self.norm1(x + attended)

    def second(self, x: Tensor) -> Tensor:
        return self.norm2(x + self.ffn(x))


class RMS(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(D))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class NormedByRMS(Plain):
    def norm(self) -> nn.Module:
        return RMS()


class HandNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(D)), nn.Parameter(torch.zeros(D))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return self.gamma * centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-12) + self.beta


class NormedByHand(PostNorm):
    def norm(self) -> nn.Module:
        return HandNorm()


class Rope(Plain):
    def rotated(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        n, d = q.shape[-2:]
        angle = torch.arange(n, dtype=q.dtype)[:, None] * 10000 ** (-torch.arange(0, d, 2, dtype=q.dtype) / d)
        cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)

        def turned(x: Tensor) -> Tensor:
            return x * cos + torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1) * sin

        return turned(q), turned(k)


class SwiGLU(Plain):
    def feed(self) -> None:
        self.gate, self.up, self.down = nn.Linear(D, FF), nn.Linear(D, FF), nn.Linear(FF, D)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class GroupedKeys(Plain):
    heads_of_keys = 1


class QueryKeyNorm(Plain):
    def feed(self) -> None:
        super().feed()
        self.q_norm, self.k_norm = nn.LayerNorm(D // H), nn.LayerNorm(D // H)

    def rotated(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.q_norm(q), self.k_norm(k)


class LayerScale(Plain):
    def feed(self) -> None:
        super().feed()
        self.scale1, self.scale2 = (nn.Parameter(torch.full((D,), 0.1)) for _ in range(2))

    def first(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        attended = self.scale1 * self.attend(self.norm1(x), ignore)
        if self.bug == "residual-missing":
            return attended
        return x + attended

    def second(self, x: Tensor) -> Tensor:
        return x + self.scale2 * self.ffn(self.norm2(x))


class Window(Plain):
    def added(self, scores: Tensor) -> Tensor:
        at = torch.arange(scores.shape[-1])
        return scores.masked_fill((at[None] - at[:, None]).abs() > 2, -torch.inf)


class WideHeads(Plain):
    width = 2 * D


class Pointwise(Plain):
    def feed(self) -> None:
        self.up, self.down = nn.Conv1d(D, FF, 1), nn.Conv1d(FF, D, 1)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x.transpose(1, 2)))).transpose(1, 2)


class Filled(Plain):
    def hidden(self, scores: Tensor, ignore: Tensor) -> Tensor:
        if self.bug == "mask-inverted":
            ignore = ~ignore
        return scores.masked_fill(ignore[:, None, None, :], -1e9)


class Lengths(Plain):
    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        return self.layer(x, torch.arange(x.shape[1])[None] >= lengths[:, None])


class ChannelsFirst(Plain):
    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Any:
        return self.layer(x.transpose(1, 2), key_padding_mask).transpose(1, 2)


class SequenceFirst(Plain):
    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Any:
        return self.layer(x.transpose(0, 1), key_padding_mask).transpose(0, 1)


class TupleOut(Plain):
    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Any:
        return self.layer(x, key_padding_mask), None, {"cache": None}


class OfAMapping(Plain):
    def forward(self, batch: Any) -> Any:
        return {"hidden": self.layer(batch["hidden"], batch.get("key_padding_mask"))}


class OfPositions(Rope):
    """Rotated by positions that it needs."""

    def forward(self, x: Tensor, position_ids: Tensor, key_padding_mask: Tensor | None = None) -> Any:
        if position_ids.shape != x.shape[:2]:
            raise ValueError(f"positions {position_ids.shape}")
        return self.layer(x + 0 * position_ids[..., None], key_padding_mask)


class NamedAsTensor2Tensor(Plain):
    """Called w_qs, w_ks, w_vs and fc."""

    def feed(self) -> None:
        super().feed()
        self.w_qs, self.w_ks, self.w_vs, self.fc = self.q_proj, self.k_proj, self.v_proj, self.o_proj
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            delattr(self, name)

    def __getattr__(self, name: str) -> Any:
        other = {"q_proj": "w_qs", "k_proj": "w_ks", "v_proj": "w_vs", "o_proj": "fc"}
        own = other.get(name, name)
        return nn.Module.__getattr__(self, own if own in self._modules else name)


class NamedWq(NamedAsTensor2Tensor):
    """Called Wq, Wk, Wv and Wo."""

    def feed(self) -> None:
        super().feed()
        self.Wq, self.Wk, self.Wv, self.Wo = self.w_qs, self.w_ks, self.w_vs, self.fc
        for name in ("w_qs", "w_ks", "w_vs", "fc"):
            delattr(self, name)

    def __getattr__(self, name: str) -> Any:
        other = {"q_proj": "Wq", "k_proj": "Wk", "v_proj": "Wv", "o_proj": "Wo"}
        own = other.get(name, name)
        return nn.Module.__getattr__(self, own if own in self._modules else name)


class NamedToQ(NamedAsTensor2Tensor):
    """Called to_q, to_k, to_v and to_out."""

    def feed(self) -> None:
        super().feed()
        self.to_q, self.to_k, self.to_v, self.to_out = self.w_qs, self.w_ks, self.w_vs, self.fc
        for name in ("w_qs", "w_ks", "w_vs", "fc"):
            delattr(self, name)

    def __getattr__(self, name: str) -> Any:
        other = {"q_proj": "to_q", "k_proj": "to_k", "v_proj": "to_v", "o_proj": "to_out"}
        own = other.get(name, name)
        return nn.Module.__getattr__(self, own if own in self._modules else name)


class LowRank(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.a, self.b = base, nn.Parameter(torch.randn(2, D) / 8), nn.Parameter(torch.randn(D, 2) / 8)

    @property
    def weight(self) -> Tensor:
        return self.base.weight + self.b @ self.a

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.a.T @ self.b.T


class Adapted(Plain):
    """With LoRA beside the query's and the value's maps."""

    def feed(self) -> None:
        super().feed()
        self.q_proj, self.v_proj = LowRank(self.q_proj), LowRank(self.v_proj)


class WeightNormed(Plain):
    def feed(self) -> None:
        super().feed()
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            nn.utils.parametrizations.weight_norm(getattr(self, name))


class ByEinsum(Plain):
    """Scores and context by einsum, with heads on the axis behind positions."""

    def heads(self, x: Tensor) -> Tensor:
        batch, positions, width = x.shape
        if self.bug == "heads-not-transposed":
            return x.reshape(batch, H, positions, width // H).transpose(1, 2)
        return x.unflatten(-1, (H, -1))

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = map(self.heads, self.projected(x))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
        if ignore is not None:
            scores = self.hidden(scores, ignore)
        weights = scores.softmax(-2 if self.bug == "softmax-axis" else -1)
        return self.o_proj(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))


KINDS: dict[str, Callable[[str], nn.Module]] = {
    kind.__name__: kind
    for kind in (
        *(Plain, PostNorm, NormedByRMS, NormedByHand, Rope, SwiGLU, GroupedKeys, QueryKeyNorm, LayerScale, Window),
        *(WideHeads, Pointwise, Filled, Lengths, ChannelsFirst, SequenceFirst, TupleOut, OfAMapping, OfPositions),
        *(NamedAsTensor2Tensor, NamedWq, NamedToQ, Adapted, WeightNormed, ByEinsum),
    )
}
BUGS = (
    *("heads-not-transposed", "softmax-axis", "residual-missing", "query-key-exchanged", "mask-inverted"),
    "bias-dropped",
)


def made(kind: str, bug: str = "") -> nn.Module:
    torch.manual_seed(0)
    module = KINDS[kind](bug)
    for value in module.parameters():
        if value.ndim == 1:
            nn.init.normal_(value, 0.5, 0.2)
    return module.eval()
