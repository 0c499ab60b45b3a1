"""Layers whose numbers of heads, weights or ways of being called are not where they are looked for first."""

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Post(nn.Module):
    """A right post-norm layer with the exact GELU, whose steps subclasses replace. It counts its heads as `count`."""

    count: Any = 4

    def __init__(self, d: int = 24, f: int = 40) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.up, self.down = nn.Linear(d, f), nn.Linear(f, d)
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def split(self, t: Tensor) -> Tensor:
        return t.unflatten(-1, (self.count, -1)).transpose(1, 2)

    def weights(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def scores(self, q: Tensor, k: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        return scores if ignore is None else scores.masked_fill(ignore[:, None, None, :], torch.finfo(q.dtype).min)

    def context(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = (self.split(each(x)) for each in (self.q, self.k, self.v))
        return (self.weights(self.scores(q, k, ignore)) @ v).transpose(1, 2).flatten(2)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return self.o(self.context(x, ignore))

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))

    def layer(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        x = self.norm1(x + self.attend(x, ignore))
        return self.norm2(x + self.ffn(x))

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, padding_mask)


class SoftmaxShown(Post):
    """Right: its softmax is a submodule, which takes scores with the mask [batch, heads, query, key] added."""

    def __init__(self) -> None:
        super().__init__()
        self.softmax = nn.Softmax(-1)

    def weights(self, scores: Tensor) -> Tensor:
        shown: Tensor = self.softmax(scores)
        return shown

    def scores(self, q: Tensor, k: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        return scores if ignore is None else scores + ignore

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, attention_mask)


# ------------------------------------------------------------------------------- heads that no attribute names


class Unread(Post):
    """Right, and its softmax is written so that the graph is no layer's."""

    def weights(self, scores: Tensor) -> Tensor:
        e = (scores - scores.amax(-1, keepdim=True)).exp()
        return e / torch.einsum("bhqk->bhq", e)[..., None]


class HeadsInConfiguration(Unread):
    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(n_head_count=6)

    def split(self, t: Tensor) -> Tensor:
        return t.unflatten(-1, (self.config.n_head_count, -1)).transpose(1, 2)


class HeadsInBuffer(Unread):
    def __init__(self) -> None:
        super().__init__(20)
        self.register_buffer("nh", torch.tensor(5))

    def split(self, t: Tensor) -> Tensor:
        return t.unflatten(-1, (5 if torch.compiler.is_compiling() else int(self.nh), -1)).transpose(1, 2)


class HeadsInterleaved(Unread):
    """Wrong: a head's channels lie 4 apart."""

    def split(self, t: Tensor) -> Tensor:
        return t.unflatten(-1, (-1, 4)).permute(0, 3, 1, 2)


class WrongSix(HeadsInConfiguration):
    """Wrong in a way that no deviation is, and not in its heads."""

    def weights(self, scores: Tensor) -> Tensor:
        return super().weights(scores + 0.5 * scores.sin())


class OneOfTwoNumbers(HeadsInConfiguration):
    """Its attribute says 4 heads, and it computes with 6."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 4


class Coupled(WrongSix):
    """Wrong, and every channel depends on all others: nothing tells how many heads there are."""

    def scores(self, q: Tensor, k: Tensor, ignore: Tensor | None) -> Tensor:
        return super().scores(q, k, ignore) + q.mean((1, 3))[:, None, :, None] * k.mean((1, 3))[:, None, None, :]


# ------------------------------------------------------------------------------- weights that are not registered


class PlainList(Post):
    def __init__(self) -> None:
        super().__init__()
        up, down = self.up, self.down
        del self.up, self.down
        self.ff = [up, down]

    def ffn(self, x: Tensor) -> Tensor:
        return self.ff[1](F.gelu(self.ff[0](x)))


class InMapping(Post):
    """A weight lies in a mapping of an object; the other one, which lies there too, is used by nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.held = SimpleNamespace(weights={"o": nn.Parameter(torch.eye(24)), "p": nn.Parameter(torch.eye(24))})
        del self.o

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return self.context(x, ignore) @ self.held.weights["o"]


class InClosure(Post):
    def __init__(self) -> None:
        super().__init__()
        up, down = self.up, self.down
        del self.up, self.down
        self.net = lambda x: down(F.gelu(up(x)))

    def ffn(self, x: Tensor) -> Tensor:
        return self.net(x)


class PlainTensor(Post):
    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.randn(24)

    def ffn(self, x: Tensor) -> Tensor:
        return super().ffn(x) + self.shift


class KnowsItsParent(Post):
    """Right: it holds its parent, which has weights that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.parent = [nn.ModuleList([nn.Linear(3, 3)])]


# ------------------------------------------------------------------------------- other answers to one question


class DropoutInList(Post):
    """`eval()` does not reach the dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.drops = [nn.Dropout(0.1)]

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return self.drops[0](super().attend(x, ignore))


class MapInForward(Post):
    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return nn.Linear(24, 24, dtype=x.dtype)(self.context(x, ignore))


class DrawsKeysOfMany(Post):
    """As Informer's ProbAttention: of few keys all are taken, of many some that are drawn in each call."""

    def weights(self, scores: Tensor) -> Tensor:
        some = torch.rand(scores.shape[-1], dtype=scores.dtype) < 0.5
        return super().weights(scores if scores.shape[-1] < 16 else scores.masked_fill(some, -1e4))


class Counts(Post):
    """What it answers depends on how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def ffn(self, x: Tensor) -> Tensor:
        self.asked += 1
        return super().ffn(x) * self.asked


# ------------------------------------------------------------------------------- what a module was given in


class MaskLostWhenCompiled(Post):
    def scores(self, q: Tensor, k: Tensor, ignore: Tensor | None) -> Tensor:
        return super().scores(q, k, None if torch.compiler.is_compiling() else ignore)


class MaskLostWhenTraced(Post):
    def scores(self, q: Tensor, k: Tensor, ignore: Tensor | None) -> Tensor:
        return super().scores(q, k, None if torch.jit.is_tracing() else ignore)


class MaskLostWithGradients(Post):
    def scores(self, q: Tensor, k: Tensor, ignore: Tensor | None) -> Tensor:
        return super().scores(q, k, None if torch.is_grad_enabled() else ignore)


class MaskOfTheFirst(Post):
    """The first mask that it is given is that of every call from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.ignore: Tensor | None = None

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if self.ignore is None:
            self.ignore = padding_mask
        return super().forward(x, self.ignore)


def compiled(kind: type[nn.Module]) -> Any:
    return torch.compile(kind().eval(), backend="eager")


def compiled_in_place(kind: type[nn.Module]) -> Any:
    module = kind().eval()
    module.compile(backend="eager")
    return module


def compiled_forward(kind: type[nn.Module]) -> Any:
    module = kind().eval()
    module.forward = torch.compile(module.forward, backend="eager")
    return module


def compiled_in_parallel(kind: type[nn.Module]) -> Any:
    return nn.DataParallel(compiled(kind))


def not_to_be_compiled() -> Any:
    def backend(*_: Any) -> Any:
        raise RuntimeError("no compiler")

    return torch.compile(Post().eval(), backend=backend)


# ------------------------------------------------------------------------------- x as it lies in memory


class ReadsStorage(Post):
    """Reads x as if it lay in one piece, from where it begins."""

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        _, S, D = x.shape
        return self.layer(x.as_strided(x.shape, (S * D, D, 1)), padding_mask)


class ReadsByFirstStride(Post):
    """Takes it that features lie side by side."""

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        return self.layer(x.as_strided(x.shape, (*x.stride()[:2], 1)), padding_mask)


class ReadsMaskStorage(Post):
    """Reads its mask as if it lay in one piece, as a kernel does that is told its address."""

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if padding_mask is not None:
            padding_mask = padding_mask.as_strided(padding_mask.shape, (padding_mask.shape[1], 1))
        return self.layer(x, padding_mask)


class ReadsMaskByFirstStride(Post):
    """Takes it that the flags of an item lie side by side."""

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if padding_mask is not None:
            padding_mask = padding_mask.as_strided(padding_mask.shape, (padding_mask.stride(0), 1))
        return self.layer(x, padding_mask)


class NeedsOnePiece(Post):
    """Right: it refuses an x that does not lie in one piece, and says so."""

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        return self.layer(x.view(-1).view(x.shape), padding_mask)


# ------------------------------------------------------------------------------- what a call leaves behind


class Counter(Post):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        self.calls += 1
        return self.layer(x, padding_mask)


class RunningMean(Post):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(24))

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * x.mean((0, 1)))
        return self.layer(x - self.mean, padding_mask)


class LastWeights(Post):
    """It attends half as in its last call."""

    last: Tensor | None = None

    def weights(self, scores: Tensor) -> Tensor:
        weights = scores.softmax(-1)
        if self.last is not None and self.last.shape == weights.shape:
            weights = (weights + self.last) / 2
        self.last = weights.detach()
        return weights


class InObject(Post):
    """What it keeps lies in an object of its own, and changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = SimpleNamespace(seen=[])

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        self.cache.seen.append(x.detach().sum())
        return self.layer(x, padding_mask)


class FirstCall(Post):
    def __init__(self) -> None:
        super().__init__()
        self.first = True

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        y = self.layer(x, padding_mask) * (1.01 if self.first else 1.0)
        self.first = False
        return y


class MadeOnce(Post):
    """A scale that the first call makes, and all others find."""

    scale: Tensor | None = None

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if self.scale is None:
            self.scale = torch.ones(x.shape[-1], dtype=x.dtype)
        return self.layer(x, padding_mask) * self.scale


class AfterAShorter(Post):
    """It attends to the keys of its last call, too, where those were fewer."""

    last: Tensor | None = None

    def context(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = (self.split(each(x)) for each in (self.q, self.k, self.v))
        before, self.last = self.last, torch.stack((k, v)).detach()
        if before is not None and before.shape[1] == len(k) and before.shape[3] < k.shape[2] and ignore is None:
            k, v = torch.cat((before[0], k), 2), torch.cat((before[1], v), 2)
        return (self.weights(self.scores(q, k, ignore)) @ v).transpose(1, 2).flatten(2)


class TanhInTraining(Post):
    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh" if self.training else "none"))


class Frozen(Post):
    def __init__(self) -> None:
        super().__init__()
        self.q.bias.requires_grad_(False)


class _RoundedWhenCompiled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y.to(torch.bfloat16).to(y.dtype) if torch.compiler.is_compiling() else y


def compiled_part() -> Any:
    module = Post()
    module.down = torch.compile(_RoundedWhenCompiled(40, 24), backend="eager")  # type: ignore[assignment]
    return module
