"""The softmax over the keys that a mask leaves a query."""

from dataclasses import dataclass

import torch
from torch import Tensor

from encoder_conformance.impls.bases.choices import SoftmaxChoice


@dataclass(frozen=True)
class MaskedSoftmax(SoftmaxChoice):
    empty_row: str = "zero"

    @property
    def is_fused(self) -> bool:
        """Whether it is what PyTorch's fused kernel computes, which knows no row but zero's."""
        return self.empty_row == "zero" and self.masked_score is None

    def __call__(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """The weights of scores [B, H, S, T]; the mask is true where a key may be attended to."""
        if mask is not None:
            scores = scores.masked_fill(~mask, self.fill(scores))
        weights = scores.softmax(dim=-1)
        if mask is not None and self.empty_row == "zero":
            weights = weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)
        return weights

    def fill(self, scores: Tensor) -> float:
        least = max(torch.finfo(scores.dtype).min, torch.finfo(torch.float32).min)
        if self.masked_score is not None:
            return max(self.masked_score, least)
        if self.empty_row == "nan":
            return -torch.inf
        # A row of the lowest number has weights of 1/S, and a gradient, where one of minus infinity has NaN. No lower
        # than float32's: torch.onnx.export takes a float64's lowest through float32, where it is minus infinity.
        return least

    def needed(self, valid: Tensor, mask: Tensor) -> Tensor:
        """[B, S], false at padding that nothing is to be computed with: a weight of 0 keeps out neither what overflows
        nor NaN. Uniform weights over every key are no 0: an item with a query that has no key keeps its padding."""
        if self.empty_row != "uniform":
            return valid
        return valid | ~mask.any(dim=-1).flatten(1).all(dim=1, keepdim=True)
