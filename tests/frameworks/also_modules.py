"""A layer that is right as it is, another whose masks fill with a number, and some that are another in another form."""

import torch
from torch import Tensor, nn

D, H, F = 16, 2, 24


class Block(nn.Module):
    """A post-norm layer, which gives NaN for an item of padding alone."""

    low = float("-inf")

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.up, self.down = nn.Linear(D, F), nn.Linear(F, D)

    def attended(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        split = x.shape[0], x.shape[1], H, D // H
        q, k, v = (part(x).view(split).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / (D // H) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], self.low)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))

    def fed(self, x: Tensor) -> Tensor:
        return self.down(nn.functional.gelu(self.up(x)))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = self.norm1(x + self.attended(x, mask))
        return self.norm2(y + self.fed(y))


class SideBySide(Block):
    """Nothing skips the two."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.attended(self.norm1(x), mask) + self.fed(self.norm2(x))


class Placed(Block):
    """It needs positions, of which it adds numbers to x."""

    def forward(self, x: Tensor, *, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x + torch.sin(positions[..., None].to(x.dtype)), mask)


class Filled(Block):
    low = -1e9


class Halving(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (0.5 if torch.compiler.is_compiling() else 1.0)


class Lowered(Block):
    """Another layer where it is compiled or exported, from its first norm on."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = Halving(D)


class HalvingCompiled(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (0.5 if torch.compiler.is_dynamo_compiling() else 1.0)


class Compiled(Block):
    """Another layer under torch.compile alone."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = HalvingCompiled(D)


class HalvingInHalf(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (0.5 if x.dtype == torch.float16 else 1.0)


class WrongInHalf(Block):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = HalvingInHalf(D)


class NoHalf(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if x.dtype == torch.float16:
            raise RuntimeError("no kernel for Half")
        return super().forward(x, mask)


class FastNorm(nn.LayerNorm):
    """The variance as E[x²] − E[x]², of which little is left where features are far from zero."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = (x * x).mean(-1, keepdim=True) - mean * mean
        return (x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias


class FastVariance(Block):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = FastNorm(D), FastNorm(D)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)
