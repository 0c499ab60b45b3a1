"""What layers of today compute beside attention: each feature alone, and two other ways to write it."""

import torch
from cases_plain import RMS, Plain, PlainPost
from torch import Tensor, nn
from torch.nn import functional as F

# ------------------------------------------------------------------------------- a gate


class SwiGLU(Plain):
    def make_ffn(self) -> None:
        self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class OneMapOfGateAndUp(PlainPost):
    """The gate is the second half of one map."""

    def make_ffn(self) -> None:
        self.both, self.down = nn.Linear(24, 80, bias=False), nn.Linear(40, 24, bias=False)

    def ffn(self, x: Tensor) -> Tensor:
        up, gate = self.both(x).chunk(2, -1)
        return self.down(up * F.silu(gate))


class GeGLU(SwiGLU):
    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.gate(x), approximate="tanh").mul(self.up(x)))


# ------------------------------------------------------------------------------- gains, and sums


class LayerScale(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.g1, self.g2 = nn.Parameter(torch.full((self.D,), 0.1)), nn.Parameter(torch.full((self.D,), 0.1))

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.g1 * self.attend(self.norm1(x), ignore)
        return x + self.g2 * self.ffn(self.norm2(x))


class _Gain(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((size,), 1e-2))

    def forward(self, x: Tensor) -> Tensor:
        return x.mul(self.gamma)


class LayerScaleInModules(PlainPost):
    def __init__(self) -> None:
        super().__init__()
        self.o, self.down = nn.Sequential(self.o, _Gain(24)), nn.Sequential(self.down, _Gain(24))


class LayerScaleOfOne(Plain):
    """Of the feed-forward network alone."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = _Gain(16)

    def ffn(self, x: Tensor) -> Tensor:
        return self.gain(super().ffn(x))


class Parallel(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return x + self.attend(self.norm1(x), ignore) + self.ffn(self.norm2(x))


class ParallelOfOneNorm(Plain):
    """Both take what one norm gives."""

    def __init__(self) -> None:
        super().__init__()
        del self.norm2

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        y = self.norm1(x)
        return x + (self.attend(y, ignore) + self.ffn(y))


class ParallelRMS(Parallel):
    D, H = 24, 3

    def norm(self) -> nn.Module:
        return RMS(24)


# ------------------------------------------------------------------------------- parts that no encoder layer has


class Cross(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.norm3, self.cross = nn.LayerNorm(16), nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        x = x + self.attend(self.norm1(x), padding)
        x = x + self.cross(self.norm3(x), memory, memory, need_weights=False)[0]
        return x + self.ffn(self.norm2(x))


def decoder_of_pytorch() -> nn.Module:
    return nn.TransformerDecoderLayer(16, 2, 24, batch_first=True)


class CrossIfAsked(Cross):
    """Without a memory it is an encoder's layer, whose third norm nothing uses."""

    def forward(self, x: Tensor, padding: Tensor | None = None, memory: Tensor | None = None) -> Tensor:
        return self.layer(x, padding) if memory is None else super().forward(x, memory, padding)


def _expert() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))


class MoE(Plain):
    def make_ffn(self) -> None:
        self.router, self.experts = nn.Linear(16, 4), nn.ModuleList(_expert() for _ in range(4))

    def ffn(self, x: Tensor) -> Tensor:
        weight, chosen = self.router(x).softmax(-1).topk(1, -1)
        all_of_them = torch.stack([expert(x) for expert in self.experts], -2)
        return weight * all_of_them.gather(-2, chosen[..., None].expand(*chosen.shape, 16)).squeeze(-2)


class MoESoft(MoE):
    """Every expert, weighed."""

    def ffn(self, x: Tensor) -> Tensor:
        return torch.einsum("bse,bsed->bsd", self.router(x).softmax(-1), torch.stack([e(x) for e in self.experts], -2))


class MoEOfTwo(MoE):
    """Each expert takes the rows that are its own."""

    def ffn(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, 16)
        weights, chosen = self.router(rows).softmax(-1).topk(2, -1)
        y = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            row, place = (chosen == number).nonzero(as_tuple=True)
            y = y.index_add(0, row, weights[row, place, None] * expert(rows[row]))
        return y.reshape(x.shape)


class _OverTheBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(16)

    def forward(self, x: Tensor) -> Tensor:
        return self.bn(x.transpose(1, 2)).transpose(1, 2)


class AutocastInside(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x, padding).to(x.dtype)


class BatchNorm(Plain):
    def norm(self) -> nn.Module:
        return _OverTheBatch()


class BatchNormOfOne(Plain):
    """The second norm alone."""

    def __init__(self) -> None:
        super().__init__()
        self.norm2 = _OverTheBatch()


class _ByHand(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.rand(16) + 0.5), nn.Parameter(torch.randn(16))
        self.register_buffer("mean", torch.randn(16))
        self.register_buffer("var", torch.rand(16) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) * torch.rsqrt(self.var + 1e-5) * self.gain + self.shift


class BatchNormByHand(Plain):
    def norm(self) -> nn.Module:
        return _ByHand()


class ConvFFN(Plain):
    def make_ffn(self) -> None:
        self.up, self.down = nn.Conv1d(16, 24, 3, padding=1), nn.Conv1d(24, 16, 3, padding=1)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x.transpose(1, 2)))).transpose(1, 2)


class ConvBetween(Plain):
    """A depthwise convolution between the two maps."""

    def make_ffn(self) -> None:
        super().make_ffn()
        self.between = nn.Conv1d(24, 24, 3, padding=1, groups=24)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.between(self.up(x).transpose(1, 2)).transpose(1, 2)))


class ConvBehindGate(ConvBetween):
    """As a Conformer's convolution: behind a gate by the sigmoid of half of the features."""

    def make_ffn(self) -> None:
        super().make_ffn()
        self.wide = nn.Linear(16, 48)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.between(F.glu(self.wide(x)).transpose(1, 2)).transpose(1, 2)))


class ConvBehind(Plain):
    """It looks at what is before alone, since it is padded there by hand."""

    def make_ffn(self) -> None:
        self.up, self.down = nn.Conv1d(16, 24, 4), nn.Linear(24, 16)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(F.pad(x.transpose(1, 2), (3, 0)))).transpose(1, 2))


# ------------------------------------------------------------------------------- linear maps that are convolutions


class Pointwise(Plain):
    def make_ffn(self) -> None:
        self.up, self.down = nn.Conv1d(16, 24, 1), nn.Conv1d(24, 16, 1)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x.transpose(1, 2)))).transpose(1, 2)


class PointwiseOfRows(PlainPost):
    """Two dimensions, of which one has one place."""

    def make_ffn(self) -> None:
        self.up, self.down = nn.Conv2d(24, 40, 1), nn.Conv2d(40, 24, 1)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x.transpose(1, 2)[..., None])))[..., 0].transpose(1, 2)


class _Conv(nn.Conv1d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class PointwiseAttention(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (_Conv(16, 16, 1) for _ in range(4))


# ------------------------------------------------------------------------------- norms by hand


class _Norm(nn.Module):
    def __init__(self, size: int, epsilon: float, way: str) -> None:
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.epsilon, self.way = epsilon, way

    def forward(self, x: Tensor) -> Tensor:
        return self.gamma * self.normed(x) + self.beta

    def normed(self, x: Tensor) -> Tensor:
        away = x - x.mean(-1, keepdim=True)
        match self.way:
            case "var":
                return away / torch.sqrt(x.var(-1, unbiased=False, keepdim=True) + self.epsilon)
            case "mean of squares":
                return away * torch.rsqrt(away.pow(2).mean(-1, keepdim=True) + self.epsilon)
            case "unbiased":
                return away / torch.sqrt(x.var(-1, keepdim=True) + self.epsilon)
            case "unbiased outside":
                return away / (x.std(-1, keepdim=True) + self.epsilon)
            case "outside":
                return away / (x.std(-1, unbiased=False, keepdim=True) + self.epsilon)
        raise ValueError(self.way)


class HandNorm(Plain):
    EPSILON, WAY = 1e-12, "var"

    def norm(self) -> nn.Module:
        return _Norm(self.D, self.EPSILON, self.WAY)


class HandNormPost(PlainPost):
    def norm(self) -> nn.Module:
        return _Norm(self.D, 1e-12, "mean of squares")


class HandNormUnbiased(HandNorm):
    """Divides by n − 1: torch.std's way, which is no layer norm."""

    EPSILON, WAY = 1e-6, "unbiased"


class WideAnnotated(HandNorm):
    """The Annotated Transformer's norm and mask, at a width at which D − 1 is nearly D."""

    D, H, HIDDEN, EPSILON, WAY = 256, 4, 64, 1e-6, "unbiased outside"

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else torch.where(ignore[:, None, None, :], -1e9, 0.0)


class Annotated(WideAnnotated):
    D, H, HIDDEN = 24, 3, 40


class HandNormDetached(HandNormUnbiased):
    """Its norms have a formula of their own, and no gradient goes through them."""

    def norm(self) -> nn.Module:
        made = super().norm()
        made.register_forward_hook(lambda part, given, output: output.detach())
        return made


class HandNormOutside(HandNormPost):
    """ε is added to the deviation, and not to the variance."""

    def norm(self) -> nn.Module:
        return _Norm(self.D, 1e-6, "outside")


def hand_norm(epsilon: float = 1e-8) -> nn.Module:
    made: nn.Module = type("Normed", (Plain,), {"norm": lambda self: _Norm(self.D, epsilon, "var")})()
    return made


class _OfChannels(nn.Module):
    """Norms the channels of [batch, channels, height, width], as ConvNeXt's does."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        away = x - x.mean(1, keepdim=True)
        normed = away / torch.sqrt(away.pow(2).mean(1, keepdim=True) + 1e-6)
        return self.weight[:, None, None] * normed + self.bias[:, None, None]


class HandNormOfChannels(nn.Module):
    """[batch, channels, height, width] throughout, and all maps are convolutions of kernel 1."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = _OfChannels(16), _OfChannels(16)
        self.qkv, self.proj = nn.Conv2d(16, 48, 1, bias=False), nn.Conv2d(16, 16, 1)
        self.fc1, self.fc2 = nn.Conv2d(16, 24, 1), nn.Conv2d(24, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).reshape(len(x), 3, 2, 8, -1).unbind(1)
        context = v @ (q.mT @ k * 8**-0.5).softmax(-1).mT
        x = x + self.proj(context.reshape(x.shape))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class NormsWithoutParameters(Plain):
    def norm(self) -> nn.Module:
        return nn.LayerNorm(self.D, eps=1e-6, elementwise_affine=False)


class _OverPositions(nn.GroupNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mT).mT


class NormOfGroups(Plain):
    """Of one group: all features of all positions of an item."""

    def norm(self) -> nn.Module:
        return _OverPositions(1, self.D)


class _Squashed(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.alpha, self.weight = nn.Parameter(torch.full((1,), 0.5)), nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.alpha * x) * self.weight


class SquashedForNorms(Plain):
    """DyT."""

    def norm(self) -> nn.Module:
        return _Squashed(self.D)


class KeysOfNoPositionTurned(HandNorm):
    """As ESM-1's: x is [sequence, batch, d_model], and one more key is turned by its place as those of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.bias_k, self.bias_v = (nn.Parameter(torch.randn(1, 1, 16)) for _ in range(2))

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        angles = torch.arange(k.shape[1], dtype=k.dtype)[:, None] * 100.0 ** (-torch.arange(0, 8, 2, dtype=k.dtype) / 8)
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

        def turned(t: Tensor) -> Tensor:
            first, second = t.chunk(2, -1)
            return t * cos[: t.shape[1]] + torch.cat((-second, first), -1) * sin[: t.shape[1]]

        return turned(q), turned(k)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        S, B, D = x.shape

        def heads(t: Tensor) -> Tensor:
            return t.reshape(-1, B * self.H, D // self.H).transpose(0, 1)

        k, v = torch.cat([self.k(x), self.bias_k.repeat(1, B, 1)]), torch.cat([self.v(x), self.bias_v.repeat(1, B, 1)])
        q, k = self.rotate(heads(self.q(x)), heads(k))
        weights = (torch.bmm(q, k.transpose(1, 2)) / (D // self.H) ** 0.5).softmax(-1)
        return self.o(torch.bmm(weights, heads(v)).transpose(0, 1).reshape(S, B, D))


class GrowsAsItTurns(HandNorm):
    """xPos: queries grow with their position, and keys shrink."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        n = q.shape[2]
        at, pair = torch.arange(n, dtype=q.dtype)[:, None], torch.arange(0, 8, 2, dtype=q.dtype) / 8
        cos, sin = (each.repeat(1, 2) for each in ((at * 100.0**-pair).cos(), (at * 100.0**-pair).sin()))
        decay = ((pair + 0.4) / 1.4).repeat(2) ** ((at - n // 2) / 512)

        def turned(t: Tensor) -> Tensor:
            first, second = t.chunk(2, -1)
            return t * cos + torch.cat((-second, first), -1) * sin

        return turned(q) * decay, turned(k) / decay


class FillsItsScoresUp(Plain):
    """Softmax over one more term, of a column of zeros."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, bias = q @ k.mT / q.shape[-1] ** 0.5, self.bias(k.shape[2], ignore)
        filled = F.pad(scores if bias is None else scores + bias, (0, 1))
        return filled.softmax(-1)[..., :-1] @ v


class DividesByLength(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.attend(F.normalize(x, dim=-1), ignore)
        return x + self.ffn(F.normalize(x, dim=-1))


class AddsItsValues(Plain):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return super().core(q, k, v, ignore) + v  # one more


class NeedsAPackage(Plain):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        from flash_attn import flash_attn_func

        return flash_attn_func(q, k, v)


# ------------------------------------------------------------------------------- what a call does


class WritesItsWeights(Plain):
    """Holds a weight within a norm in each call, as layers of a limited norm do."""

    def ffn(self, x: Tensor) -> Tensor:
        self.up.weight.data.clamp_(-0.05, 0.05)
        return super().ffn(x)


class NeedsCuda(Plain):
    def forward(self, x: Tensor) -> Tensor:
        assert x.is_cuda, "flash attention takes tensors on CUDA"
        return self.layer(x)


class _Own(BaseException):
    pass


class RaisesItsOwn(Plain):
    def forward(self, x: Tensor) -> Tensor:
        raise _Own("no licence for this host")


class EndsItsProcess(Plain):
    def forward(self, x: Tensor) -> Tensor:
        raise SystemExit(0)


class HalfANetworkFirst(Plain):
    """Half a network before attention and half behind it, as a Macaron has."""

    def __init__(self) -> None:
        super().__init__()
        self.norm0, self.up0, self.down0 = self.norm(), nn.Linear(self.D, self.HIDDEN), nn.Linear(self.HIDDEN, self.D)

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + 0.5 * self.down0(F.relu(self.up0(self.norm0(x))))
        x = x + self.attend(self.norm1(x), ignore)
        return x + 0.5 * self.ffn(self.norm2(x))


class LearntScale(PlainPost):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, bias = q @ k.transpose(-1, -2) * self.scale, self.bias(k.shape[2], ignore)
        return (scores if bias is None else scores + bias).softmax(-1) @ v
