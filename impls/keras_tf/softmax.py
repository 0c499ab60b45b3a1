"""The softmax over the keys that a mask leaves a query."""

import math

import ml_dtypes
from keras import KerasTensor as Tensor
from keras import backend, ops

from encoder_conformance.impls.bases.choices import SoftmaxChoice


class MaskedSoftmax(SoftmaxChoice):
    @property
    def is_fused(self) -> bool:
        """Whether it is ops.dot_product_attention's, which gives a query with no key uniform weights."""
        return self.empty_row == "uniform" and self.masked_score is None

    def __call__(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """The weights of scores [B, H, S, T]; the mask is true where a key may be attended to."""
        if mask is not None:
            scores = ops.where(mask, scores, self.fill(backend.standardize_dtype(scores.dtype)))
        weights = ops.softmax(scores, axis=-1)
        if mask is not None and self.empty_row == "zero":
            weights = ops.where(ops.any(mask, axis=-1, keepdims=True), weights, 0.0)
        return weights

    def fill(self, dtype: str) -> float:
        # A row of −1e30 has weights of 1/S, and a gradient, where one of minus infinity has NaN.
        if self.empty_row == "nan":
            return -math.inf
        filled = -1e30 if self.masked_score is None else self.masked_score
        return max(filled, float(ml_dtypes.finfo(dtype).min))

    def needed(self, valid: Tensor, mask: Tensor) -> Tensor:
        """[B, S], false at padding that nothing is to be computed with: a weight of 0 keeps out neither what overflows
        nor NaN. Uniform weights over every key are no 0: an item with a query that has no key keeps its padding."""
        if self.empty_row != "uniform":
            return valid
        return ops.logical_or(valid, ~ops.expand_dims(ops.all(ops.any(mask, axis=-1), axis=(1, 2)), -1))
