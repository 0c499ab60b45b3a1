"""Blocks whose norms stand after their sub-layers alone, and whose sub-layers both read x, right and mistaken."""

from cases_attention import Rope
from cases_plain import RMS, Plain
from torch import Tensor, nn
from torch.nn import functional as F


class ResPostOfRMS(Plain):
    """As OLMo 2's block."""

    def norm(self) -> nn.Module:
        return RMS(self.D)

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.norm1(self.attend(x, ignore))
        return x + self.norm2(self.ffn(x))


class StackOfResPost(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ResPostOfRMS() for _ in range(3))

    def forward(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, ignore)
        return x


class ResPostWithoutItsSecondNorm(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.norm1(self.attend(x, ignore))
        return x + self.ffn(x)


class GatedParallel(Rope):
    """As PaLM's block: one norm, turned queries and keys, a gate."""

    def make_ffn(self) -> None:
        self.gate, self.up, self.down = (nn.Linear(16, 24, bias=False) for _ in range(3))
        self.down = nn.Linear(24, 16, bias=False)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        y = self.norm1(x)
        return self.ffn(y) + (x + self.attend(y, ignore))


class StackOfParallel(nn.Module):
    """With a norm behind the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.last = nn.ModuleList(GatedParallel() for _ in range(3)), nn.LayerNorm(16)

    def forward(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, ignore)
        return self.last(x)


class ParallelAndScaled(Plain):
    """What each sub-layer gives is multiplied before the sum."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return x + 0.5 * self.attend(self.norm1(x), ignore) + 0.5 * self.ffn(self.norm2(x))


class ParallelWithoutX(Plain):
    """Nothing skips the two."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return self.attend(self.norm1(x), ignore) + self.ffn(self.norm2(x))


class ParallelNetworkOfX(Plain):
    """The network reads x as it is."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return x + self.attend(self.norm1(x), ignore) + self.ffn(x)


class ParallelThenNormed(Plain):
    """The sum of all three is normed."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return self.norm1(x + self.attend(x, ignore) + self.ffn(x))


class ParallelHeadsNotTransposed(Plain):
    def attend(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        q, k, v = (self.split(each(x)) for each in (self.q, self.k, self.v))
        return self.o(self.core(q, k, v, ignore).reshape(x.shape))  # for heads

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        return x + self.attend(self.norm1(x), ignore) + self.ffn(self.norm2(x))
