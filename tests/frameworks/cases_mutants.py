"""Layers that differ from a right one by one small change of their code: each is named, with the line that it is at."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Norm(nn.Module):
    """Its parameters' names say nothing."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def normed(self, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)

    def forward(self, x: Tensor) -> Tensor:
        return self.a_2 * self.normed(x) + self.b_2


class GainAsShift(Norm):
    def forward(self, x: Tensor) -> Tensor:
        return self.a_2 * self.normed(x) + self.a_2


class ShiftForgotten(Norm):
    def forward(self, x: Tensor) -> Tensor:
        return self.a_2 * self.normed(x)


class GainForgotten(Norm):
    def forward(self, x: Tensor) -> Tensor:
        return self.normed(x) + self.b_2


class Residual(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
        return x + branch(self.norm(x))


class Listed(nn.Module):
    """Its maps and its norms stand in lists: their numbers alone tell them apart."""

    NORM: type[Norm] = Norm

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.up, self.down = nn.Linear(16, 48), nn.Linear(48, 16)
        self.sublayer = nn.ModuleList(Residual(self.NORM(16)) for _ in range(2))

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (4, 4)).transpose(1, 2) for part in self.linears[:3])
        return self.together(q, k, v)

    def together(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = (q @ k.transpose(-1, -2) / 2).softmax(-1)
        return self.linears[3]((weights @ v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        x = self.sublayer[0](x, self.attend)
        return self.sublayer[1](x, lambda x: self.down(torch.relu(self.up(x))))  # type: ignore[no-any-return]


class GainOfListedNormAsShift(Listed):
    NORM = GainAsShift


class ShiftOfListedNormForgotten(Listed):
    NORM = ShiftForgotten


class GainOfListedNormForgotten(Listed):
    NORM = GainForgotten


class ValueForQueryOfAList(Listed):
    def together(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().together(v, k, v)


class KeyForValueOfAList(Listed):
    def together(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().together(q, k, k)


class KeyForQueryWithoutBias(Listed):
    """Of the map that is not called the bias is read nowhere, either, and the key has none."""

    def __init__(self) -> None:
        super().__init__()
        self.linears[1] = nn.Linear(16, 16, bias=False)

    def together(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().together(k, k, v)


class DropsAll(Listed):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(1.0)

    def together(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.drop(super().together(q, k, v))  # type: ignore[no-any-return]


class DropsAllByAFlag(Listed):
    def together(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nn.functional.dropout(super().together(q, k, v), float(self.training), self.training)


class ScaleIsNoParameter(Listed):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = torch.full((16,), 0.5)
        self.gammas = nn.ParameterList([nn.Parameter(torch.full((16,), 0.5))])

    def attend(self, x: Tensor) -> Tensor:
        return self.gamma * super().attend(x)

    def forward(self, x: Tensor) -> Tensor:
        x = self.sublayer[0](x, self.attend)
        return self.sublayer[1](x, self.scaled)  # type: ignore[no-any-return]

    def scaled(self, x: Tensor) -> Tensor:
        return self.gammas[0] * self.down(torch.relu(self.up(x)))  # type: ignore[no-any-return]


class OneOfAList(Listed):
    """`nn.ModuleList([part] * n)`: what is meant to be several is one."""

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(16, 16)] * 4)


class AttentionIsNotUsed(nn.Module):
    """What is put together is the value, and no mask hides anything in it."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.up, self.down = nn.Linear(16, 48), nn.Linear(48, 16)
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        y = self.norm1(x)
        q, k = (part(y).unflatten(-1, (4, 4)).transpose(1, 2) for part in (self.q, self.k))
        v = self.v(y)  # of the value
        hidden = None if key_padding_mask is None else ~key_padding_mask[:, None, None]
        heads = v.unflatten(-1, (4, 4)).transpose(1, 2)
        nn.functional.scaled_dot_product_attention(q, k, heads, hidden)
        x = x + self.o(heads.transpose(1, 2).flatten(2))
        return x + self.down(torch.relu(self.up(self.norm2(x))))  # type: ignore[no-any-return]
