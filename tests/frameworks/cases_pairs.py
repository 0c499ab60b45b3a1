"""Layers in manners of being called that few have, with a bug or none: of two positions at least, with masks of other
formats, and with skips that are weighed."""

import torch
from cases_plain import Plain
from torch import Tensor


class OfTwoAtLeast(Plain):
    """One position is refused in its own words."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        if x.shape[1] < 2:
            raise ValueError("it needs two positions")  # of one
        return self.layer(x, padding)


class BreaksAtOne(Plain):
    """One position is squeezed away, which nobody refuses."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        x = x + self.attend(self.norm1(x), padding).squeeze(1)
        return x + self.ffn(self.norm2(x))


class FlagsOf32Bits(Plain):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None and mask.dtype != torch.int32:
            raise TypeError("a mask is of int32")
        return self.layer(x, None if mask is None else mask == 0)


class AddsHalves(Plain):
    """Its mask is added to the scores, and of float16 alone."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else ignore[:, None, None, :]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None and mask.dtype != torch.float16:
            raise TypeError("a mask is of float16")
        return self.layer(x, mask)
