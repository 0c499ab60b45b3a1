"""Layers in which one thing is not what its name or its owner says."""

import torch
from cases_plain import Plain
from cases_steps import LayerScale
from torch import Tensor
from torch.nn import functional as F


class GainOfTheOtherBranch(LayerScale):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.g1 * self.attend(self.norm1(x), ignore)
        return x + self.g1 * self.ffn(self.norm2(x))


class FirstNormIsTheSecond(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.attend(self.norm2(x), ignore)
        return x + self.ffn(self.norm2(x))


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
