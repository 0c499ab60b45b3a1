"""Layers in which one thing is not what its name or its owner says."""

from typing import Any

import torch
from cases_attention import QKNormRMS, Rope
from cases_plain import RMS, Plain, PlainPost
from cases_steps import LayerScale
from cases_strangers import Head, HeadByHead
from torch import Tensor, nn
from torch.nn import functional as F


class GainOfTheOtherBranch(LayerScale):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.g1 * self.attend(self.norm1(x), ignore)
        return x + self.g1 * self.ffn(self.norm2(x))


class FirstNormIsTheSecond(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.attend(self.norm2(x), ignore)
        return x + self.ffn(self.norm2(x))


class GivesWhatItTook(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        self.layer(x, padding)
        return x


class _HalfOfItsSlope(torch.autograd.Function):
    """GELU, x Φ(x), with a gradient of Φ(x) alone."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return y * _below(y)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * _below(*ctx.saved_tensors)


def _below(y: Tensor) -> Tensor:
    return (1 + torch.erf(y / 2**0.5)) / 2


class HalfOfASlope(PlainPost):
    def ffn(self, x: Tensor) -> Tensor:
        activated: Tensor = _HalfOfItsSlope.apply(self.up(x))
        return self.down(activated)


class SoftmaxOverflows(PlainPost):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, bias = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, self.bias(k.shape[2], ignore)
        exponentials = torch.exp(scores if bias is None else scores + bias.to(scores.dtype))
        return exponentials / exponentials.sum(-1, keepdim=True) @ v


class HiddenBehindTheSoftmax(PlainPost):
    """What is hidden takes part in the softmax, and the rest is made to sum up to 1 again."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        if ignore is not None:
            weights = weights * ~ignore[:, None, None]
            weights = weights / weights.sum(-1, keepdim=True)
        return weights @ v


class ABiasTwice(PlainPost):
    """Once more behind the sum, before the norm."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attend(x, ignore))
        return self.norm2(x + self.ffn(x) + self.down.bias)


class PaddingIsKept(Plain):
    """A padding mask that is true at positions that are there."""

    def forward(self, x: Tensor, self_attn_padding_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, None if self_attn_padding_mask is None else ~self_attn_padding_mask.bool())


class NeedsBothMasks(Plain):
    """Masks that have a default of None, with which it does not compute: one hides keys, one zeroes rows."""

    def forward(  # type: ignore[override]
        self, x: Tensor, mask: Tensor | None = None, slf_attn_mask: Tensor | None = None
    ) -> Tensor:
        x = x + self.attend(self.norm1(x), slf_attn_mask)
        return (x + self.ffn(self.norm2(x))).masked_fill(mask.unsqueeze(-1), 0)  # type: ignore[union-attr]

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        of_heads = ignore.repeat(self.H, 1, 1).unflatten(0, (self.H, -1))  # type: ignore[union-attr]
        return torch.where(of_heads.transpose(0, 1), -torch.inf, 0.0)


class OfOneResolution(Plain):
    """For the positions of a map of 9 rows and 8 columns alone."""

    def __init__(self) -> None:
        super().__init__()
        self.input_resolution = (9, 8)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        height, width = self.input_resolution
        assert x.shape[1] == height * width, "input feature has wrong size"
        return self.layer(x)


class OtherSigmoid(Plain):
    """QuickGELU with two digits exchanged."""

    def ffn(self, x: Tensor) -> Tensor:
        hidden = self.up(x)
        return self.down(hidden * torch.sigmoid(1.072 * hidden))


class OneMoreNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight + 1.0, self.bias, self.eps)


class GainsOfTwo(Plain):
    """As Gemma's norms, of which the gain less 1 is stored, begun as a LayerNorm, whose gain is 1."""

    def norm(self) -> nn.Module:
        return OneMoreNorm(self.D)


class KeptWithinLimits(Plain):
    """What a probe of small numbers does not see."""

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x).clamp(-10, 10)))


class KeptFromTheEnds(Plain):
    """As models keep their numbers from the ends of half precision, which nothing comes near to."""

    def ffn(self, x: Tensor) -> Tensor:
        return super().ffn(x).clamp(-64504.0, 64504.0)


class SquaredReLU(Plain):
    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)).square())


class OfMish(Plain):
    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.mish(self.up(x)))


class GainOfTheOtherBranchCast(GainOfTheOtherBranch):
    """The same, whose softmax is in float32 whatever it is given."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, bias = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, self.bias(k.shape[2], ignore)
        weights = (scores if bias is None else scores + bias.to(scores.dtype)).float().softmax(-1)
        return weights.to(v.dtype) @ v


class RotatedThenNormed(QKNormRMS):
    """Norms of query and key behind the rotation, with a gain of each feature."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, k = Rope.rotate(self, q, k)
        return self.q_norm(q), self.k_norm(k)


class RMSOutside(RMS):
    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x / (x.square().mean(-1, keepdim=True).sqrt() + self.epsilon)


class RMSNormsOutside(Plain):
    def norm(self) -> nn.Module:
        return RMSOutside(self.D)


class ColumnsOfABlock(Plain):
    """Keys are filled up to a block of 64, and those that are not there count as exp(0)."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, bias = q @ k.mT / q.shape[-1] ** 0.5, self.bias(k.shape[2], ignore)
        scores = scores if bias is None else scores + bias.to(scores.dtype)
        return F.pad(scores, (0, -scores.shape[-1] % 64)).softmax(-1)[..., : scores.shape[-1]] @ v


class EpsilonsOutside(QKNormRMS):
    """Every norm adds its epsilon to the root: that of queries, whose features go apart behind it, like the others."""

    def __init__(self) -> None:
        super().__init__()
        self.q_norm, self.k_norm = RMSOutside(8), RMSOutside(8)

    def norm(self) -> nn.Module:
        return RMSOutside(self.D)


class BiasTwice(Plain):
    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return super().attend(x, ignore) + self.o.bias


class SoftmaxTwice(Plain):
    """A sink beside weights in place of scores."""

    def __init__(self) -> None:
        super().__init__()
        self.sink = nn.Parameter(torch.zeros(self.H, 1, 1))

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        sunk = torch.cat([weights, self.sink.expand(*weights.shape[:3], 1)], -1)
        return sunk.softmax(-1)[..., :-1] @ v

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class FirstSumForgotten(PlainPost):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.norm1(self.attend(x, ignore))
        return self.norm2(x + self.ffn(x))


class ActivationBeforeTheNetwork(PlainPost):
    """As of nn.Sequential(nn.ReLU(), nn.Linear(…), nn.Linear(…))."""

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(self.up(torch.relu(x)))


class SeesLaterAlone(Plain):
    """A causal mask is inverted, so that the last position sees none, and gets the mean of all values."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return scores.masked_fill(torch.ones_like(scores).triu(1) == 0, -1e10).softmax(-1) @ v


class FirstKeyHidden(Plain):
    """No query attends to the first position, a class token."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).index_fill(-1, torch.tensor([0]), -1e9)
        return scores.softmax(-1) @ v

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class TableOf128(Rope):
    """Angles of so many positions; those beyond have the last one's."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        at = torch.arange(q.shape[2]).clamp(max=127).to(q.dtype)
        angles = at[:, None] * 10000.0 ** (-torch.arange(0, 8, 2, dtype=q.dtype) / 8)
        cos, sin = angles.repeat(1, 2).cos(), angles.repeat(1, 2).sin()
        return q * cos + self.turned(q) * sin, k * cos + self.turned(k) * sin

    @staticmethod
    def turned(t: Tensor) -> Tensor:
        first, second = t.chunk(2, -1)
        return torch.cat((-second, first), -1)


class SoftmaxForgotten(Plain):
    """Scores are taken for weights."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5) @ v

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class HeadWithoutSoftmax(Head):
    def forward(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.maps(x)
        return (q @ k.mT * k.shape[-1] ** -0.5) @ v


class SoftmaxForgottenHeadByHead(HeadByHead):
    kind = HeadWithoutSoftmax

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)


class ActivationBehindTheNetwork(Plain):
    """Each map of the network is followed by its activation, the last one too."""

    def ffn(self, x: Tensor) -> Tensor:
        return F.relu(self.down(F.relu(self.up(x))))


class ActivatedKeys(Plain):
    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, F.relu(k)


class HeadOfActivatedKeys(Head):
    def maps(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.query(x), F.relu(self.key(x)), self.value(x)


class ActivatedHeadByHead(HeadByHead):
    kind = HeadOfActivatedKeys


class AssertsItsMask(Plain):
    """A mask that has a default of None, which it refuses."""

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        assert attn_mask is not None
        return self.layer(x, attn_mask)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        assert ignore is not None
        return torch.where(ignore[:, None, None, :], -torch.inf, 0.0)


class AssertsPairs(AssertsItsMask):
    """A bias for each item's and head's scores, of which no form is tried."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        assert ignore is not None
        return ignore.unflatten(0, (-1, self.H, 1))[:, :, 0, 0]


class ValueBiasForgotten(Plain):
    """Biases of their own of query and value, and none of the key, as in BEiT; zeros stand in the value's place."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(self.D, 3 * self.D, bias=False)
        self.q_bias, self.v_bias = (nn.Parameter(torch.zeros(self.D)) for _ in range(2))
        del self.q, self.k, self.v

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        none = torch.zeros_like(self.q_bias)
        q, k, v = F.linear(x, self.qkv.weight, torch.cat((self.q_bias, none, none))).chunk(3, -1)
        return self.o(self.core(self.split(q), self.split(k), self.split(v), ignore).transpose(1, 2).flatten(2))


class TwoMasksAreAdded(Plain):
    """One of all items and heads, and one of each: a bias of each head's scores is in the second."""

    def forward(  # type: ignore[override]
        self, x: Tensor, attn_mask: Tensor | None = None, pos_bias: Tensor | None = None
    ) -> Tensor:
        self.added = attn_mask, pos_bias
        return self.layer(x)

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        of_all, of_each = self.added
        assert of_all is None or of_all.ndim == 2
        assert of_each is None or of_each.ndim == 4
        return sum((each for each in self.added if each is not None), torch.zeros(()))  # type: ignore[return-value]


class SumsInAnOrderThatIsDrawn(Plain):
    """Two calls are equal but for roundoff, as where queries are drawn, and all of a short sequence are."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        order = torch.randint(2**40, (q.shape[2],)).argsort()
        mean = v[:, :, order].mean(2, keepdim=True)
        return super().core(q, k, v, ignore) + mean


class _NormAndVectors(nn.Module):
    """A norm with a gain and a shift of its own, and others behind it."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.weight, self.bias = nn.Parameter(torch.rand(features) + 0.5), nn.Parameter(torch.randn(features))

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) * self.weight + self.bias


class GainsOfGains(Plain):
    def norm(self) -> nn.Module:
        return _NormAndVectors(self.D)


class NotTurnedBack(PlainPost):
    """One map gives query, key and value of each head in turn, and its norms have no parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(self.D, elementwise_affine=False) for _ in range(2))
        self.qkv = nn.Linear(self.D, 3 * self.D)
        del self.q, self.k, self.v

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (self.H, -1)).transpose(1, 2).chunk(3, -1)
        return self.o(self.core(q, k, v, ignore).reshape(x.shape))


class OutputBiasForgotten(Plain):
    """The bias of the map of heads is held by itself, and added nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(self.D, self.D, bias=False)
        self.b_o = nn.Parameter(torch.ones(self.D))


class KeysAndValuesExchanged(Plain):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return super().core(q, v, k, ignore)


class SharedKeyTwice(Plain):
    """The key, which two heads share, in the place of the query as well."""

    D, H = 32, 4

    def make_k(self) -> nn.Module:
        return nn.Linear(32, 16)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return super().core(k.repeat_interleave(2, 1), k, v, ignore)


class AttentionAddedToItself(PlainPost):
    """What skips the map of the heads is what they give, and not x."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        heads = self.core(q, k, v, ignore).transpose(1, 2).flatten(2)
        x = self.norm1(heads + self.o(heads))
        return self.norm2(x + self.ffn(x))


class CausalOfAllPositions(Plain):
    """The triangle is forgotten: no query sees any key."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return torch.zeros(n, n).masked_fill(torch.ones(n, n, dtype=torch.bool), torch.finfo(torch.float32).min)


class MultipliedByCosines(Plain):
    """A rotation of which the other half is forgotten."""

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        angles = torch.arange(q.shape[2], dtype=q.dtype)[:, None] * 0.1 ** torch.arange(q.shape[3])
        return q * angles.cos(), k * angles.cos()


class NetworkLeftOut(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.attend(self.norm1(x), ignore)
        return x + self.norm2(x)


class _ShiftForgotten(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return self.gamma * centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()


class ShiftsOfNormsForgotten(Plain):
    def norm(self) -> nn.Module:
        return _ShiftForgotten(self.D)


class GateForgotten(Plain):
    """SwiGLU's third map is made, and not called."""

    def make_ffn(self) -> None:
        self.w1, self.w3 = nn.Linear(self.D, self.HIDDEN, bias=False), nn.Linear(self.D, self.HIDDEN, bias=False)
        self.w2 = nn.Linear(self.HIDDEN, self.D, bias=False)

    def ffn(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)))


class ThirdMapLeftOver(Plain):
    """A map that nothing calls, and that is no gate by its name: the layer is right."""

    def make_ffn(self) -> None:
        super().make_ffn()
        self.down3 = nn.Linear(self.HIDDEN, self.D)
        self.linear3 = nn.Linear(self.D, self.HIDDEN)


class OneBranchHalved(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + 0.5 * self.attend(self.norm1(x), ignore)
        return x + self.ffn(self.norm2(x))


class OutputTimesANumber(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.layer(x, padding) * 1.5


class LowersAllScores(Plain):
    """Without a mask all scores are lowered by themselves times 1e9: of all but the lowest nothing is left."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return (scores + scores * -1e9).softmax(-1) @ v

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.layer(x)
