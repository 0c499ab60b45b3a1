"""Layers of PyTorch with one bug each, as people write them by hand; `# here` ends the line that is due."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Norm(nn.Module):
    def __init__(self, size: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.gain, self.shift, self.epsilon = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size)), epsilon

    def forward(self, x: Tensor) -> Tensor:
        mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.gain * (x - mean) / (deviation + self.epsilon) + self.shift


class Attending(nn.Module):
    def __init__(self, size: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.out = nn.Linear(size, size)

    def cut(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def weigh(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(-2, -1))
        weights = torch.softmax(scores / q.shape[-1] ** 0.5, -1)
        return torch.matmul(weights, v)

    def forward(self, x: Tensor) -> Tensor:
        context = self.weigh(self.cut(self.query(x)), self.cut(self.key(x)), self.cut(self.value(x)))
        return self.out(context.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    attending: type[Attending] = Attending
    norm: type[nn.Module] = nn.LayerNorm

    def __init__(self, size: int = 16, hidden: int = 24) -> None:
        super().__init__()
        self.attention = self.attending(size)
        self.norm1, self.norm2 = self.norm(size), self.norm(size)
        self.up, self.down = nn.Linear(size, hidden), nn.Linear(hidden, size)

    def activate(self, x: Tensor) -> Tensor:
        return F.gelu(x)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.activate(self.up(self.norm2(x))))


class _Scaling(Attending):
    def weigh(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(-2, -1))
        scores = scores * (1.0 / (2 * q.shape[-1]))  # here: ScaleBehind
        weights = torch.softmax(scores, -1)
        return torch.matmul(weights, v)


class ScaleBehind(Block):
    attending = _Scaling


class _ScalingQueries(Attending):
    def weigh(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q = q / (2 * q.shape[-1])  # here: ScaleBefore
        weights = torch.softmax(torch.matmul(q, k.transpose(-2, -1)), -1)
        return torch.matmul(weights, v)


class ScaleBefore(Block):
    attending = _ScalingQueries


class Activation(Block):
    def activate(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.1 * x)  # here: Activation


class _Shifting(Norm):
    def forward(self, x: Tensor) -> Tensor:
        mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.gain * (x - mean) / (deviation + self.epsilon + self.shift)  # here: NormOfAnotherKind


class NormOfAnotherKind(Block):
    norm = _Shifting


class _Dropping(Attending):
    def weigh(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)  # here: DropsAlways


class DropsAlways(Block):
    attending = _Dropping


class DrawsByItself(Block):
    def activate(self, x: Tensor) -> Tensor:
        return F.gelu(x + 0.1 * torch.randn_like(x))  # here: DrawsByItself


class NoSkip(Block):
    """The line of the sum that is missing is the layer's, and none inside of what attention does."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(self.norm1(x))  # here: NoSkip
        return x + self.down(self.activate(self.up(self.norm2(x))))


class _Halved(Attending):
    def weigh(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(-2, -1)) / q.shape[-1] ** 0.5
        weights = torch.softmax(scores.half(), -1)  # here: HalfSoftmax
        return torch.matmul(weights.to(v.dtype), v)


class HalfSoftmax(Block):
    attending = _Halved


class _Apart(Attending):
    """The distance to a key is subtracted, times a number of each head."""

    def weigh(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.matmul(q, k.transpose(-2, -1)) / q.shape[-1] ** 0.5
        places, slopes = torch.arange(q.shape[2]), 2.0 ** -torch.arange(1, self.heads + 1)
        apart = (places[:, None] - places).abs()
        scores = scores - slopes.view(-1, 1, 1) * apart  # here: DistanceSubtracted
        return torch.matmul(torch.softmax(scores, -1), v)


class DistanceSubtracted(Block):
    attending = _Apart


class ScaleOfOneBranch(Block):
    """The second scale is made, and applied to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.gamma_1, self.gamma_2 = nn.Parameter(torch.ones(16)), nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.gamma_1 * self.attention(self.norm1(x))  # here: ScaleOfOneBranch
        return x + self.down(self.activate(self.up(self.norm2(x))))


class RootNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class OwnNormTwice(Block):
    norm = RootNorm

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm1(x)  # here: OwnNormTwice
        return x + self.down(self.activate(self.up(y)))


class _Turning(Attending):
    """Each item by itself, turned in pairs by the angles of halves."""

    def weigh(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        items = zip(*(each.split(1) for each in (self.turned(q), self.turned(k), v)), strict=True)
        return torch.cat([super(_Turning, self).weigh(*each) for each in items])

    def turned(self, x: Tensor) -> Tensor:
        length, size = x.shape[-2:]
        base = 10000 ** (-torch.arange(0, size, 2, dtype=x.dtype) / size)
        angles = (torch.arange(length, dtype=x.dtype)[:, None] * base).repeat(1, 2)
        other = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return x * angles.cos() + other * angles.sin()  # here: TurnedInPairs


class TurnedInPairs(Block):
    attending = _Turning


class BranchesDoubled(Block):
    def forward(self, x: Tensor) -> Tensor:
        x = x + 2 * self.attention(self.norm1(x))  # here: BranchesDoubled
        return x + 2 * self.down(self.activate(self.up(self.norm2(x))))
