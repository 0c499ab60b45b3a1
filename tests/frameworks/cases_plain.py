"""The layer whose steps the cases replace, each in a file of its own; a padding mask is bool, true = ignore."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Plain(nn.Module):
    D, H, HIDDEN = 16, 2, 24

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = self.norm(), self.norm()
        self.q, self.o = nn.Linear(self.D, self.D), nn.Linear(self.D, self.D)
        self.k, self.v = self.make_k(), self.make_k()
        self.make_ffn()

    def norm(self) -> nn.Module:
        return nn.LayerNorm(self.D)

    def make_k(self) -> nn.Module:
        return nn.Linear(self.D, self.D)

    def make_ffn(self) -> None:
        self.up, self.down = nn.Linear(self.D, self.HIDDEN), nn.Linear(self.HIDDEN, self.D)

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.D // self.H)).transpose(1, 2)

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q, k

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else torch.where(ignore[:, None, None, :], -torch.inf, 0.0)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        if k.shape[1] != q.shape[1]:
            k, v = (each.repeat_interleave(self.H // each.shape[1], 1) for each in (k, v))
        scores, bias = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, self.bias(k.shape[2], ignore)
        return (scores if bias is None else scores + bias.to(scores.dtype)).softmax(-1) @ v

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        return self.o(self.core(*self.rotate(q, k), v, ignore).transpose(1, 2).flatten(2))

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.attend(self.norm1(x), ignore)
        return x + self.ffn(self.norm2(x))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.layer(x, padding)


class PlainPost(Plain):
    D, H, HIDDEN = 24, 3, 40

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.attend(x, ignore))
        return self.norm2(x + self.ffn(x))


class BeginsAsNothing(Plain):
    """Both branches add zeros until they were trained, so that at first no mask has an effect; sequence first."""

    def __init__(self) -> None:
        super().__init__()
        for last in (self.o, self.down):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return self.layer(x.transpose(0, 1), padding).transpose(0, 1)


class PlainByEinsum(Plain):
    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        scores, bias = torch.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5, self.bias(k.shape[2], ignore)
        return torch.einsum("bhqk,bhkd->bhqd", (scores if bias is None else scores + bias).softmax(-1), v)


class RMS(nn.Module):
    def __init__(self, size: int, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(size)), epsilon

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon)
