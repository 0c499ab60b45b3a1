"""Layers in manners of being called that few have, with a bug or none: of two positions at least, with masks of other
formats, and with skips that are weighed."""

from typing import Any

import torch
from cases_plain import Plain
from torch import Tensor, nn


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


class FlagsWhatIsValid(Plain):
    """What it calls valid is hidden."""

    def forward(self, x: Tensor, valid: Tensor | None = None) -> Tensor:
        return self.layer(x, valid)


class SkipsByAMean(Plain):
    """What skips is weighed, and so is what attention gives."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = torch.lerp(x, self.attend(self.norm1(x), ignore), 0.3)  # of both
        return x + self.ffn(self.norm2(x))


class SkipsByAGate(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(self.D, self.D)

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        y = self.attend(self.norm1(x), ignore)
        x = x + self.gate(x).sigmoid() * (y - x)  # by a gate
        return x + self.ffn(self.norm2(x))


class TakesItsNetworkAway(Plain):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = x + self.attend(self.norm1(x), ignore)
        return x - self.ffn(self.norm2(x))  # less it


class AsItsModeSays(Plain):
    """What it computes is said beside what it computes it of."""

    def forward(self, mode: str = "tensor", **kwargs: Any) -> Tensor:
        if mode == "tensor":
            return self.layer(kwargs["inputs"], kwargs.get("padding_mask"))
        raise RuntimeError(f"no mode is {mode}")


class NeedsAMode(AsItsModeSays):
    def forward(self, mode: str, **kwargs: Any) -> Tensor:  # type: ignore[override]
        if mode == "encode":
            return self.layer(kwargs["inputs"])
        raise RuntimeError(f"no mode is {mode}")
