"""Layers that branch on the numbers that they compute, which an exporter does not have."""

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor


class AssertsNoNaN(Plain):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        assert not torch.isnan(x).any(), "NaN"
        return self.layer(x, padding)


class KeepsFromInfinity(PlainPost):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        y = self.layer(x, padding)
        if torch.isinf(y).any() or torch.isnan(y).sum().item() > 0:
            y = y.clamp(-1e4, 1e4)
        return y


class HalvesWhatIsFarOut(Plain):
    """Turn by turn, of which there is none with usual numbers."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        while float(x.abs().amax()) > 1e4:
            x = x / 2
        return self.layer(x, padding)


class NothingOfZeros(PlainPost):
    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        return x if torch.allclose(x, torch.zeros_like(x)) else self.layer(x, padding)


class AnotherFarOut(PlainPost):
    """Wrong where a number is large."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        y = self.layer(x, padding)
        return y * 1.1 if x.abs().max() > 6 else y


class BranchesOnItsPositions(Plain):
    """As code that asserts that no position is beyond its table: it depends on no x."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        if torch.arange(x.shape[1]).max() >= 4096:
            raise ValueError("too long")
        return self.layer(x, padding)
