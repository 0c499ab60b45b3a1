"""The softmax over the keys that a mask leaves a query."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from encoder_conformance.impls.bases.choices import SoftmaxChoice


class MaskedSoftmax(SoftmaxChoice):
    @property
    def is_fused(self) -> bool:
        """Whether it is the one of jax.nn.dot_product_attention, which gives a query with no key uniform weights."""
        return self.empty_row == "uniform" and self.masked_score is None

    def __call__(self, scores: Array, mask: Array | None) -> Array:
        """The weights of scores [B, H, S, T]; the mask is true where a key may be attended to."""
        if mask is not None:
            # A row of −1e30 has weights of 1/S, and a gradient, where one of minus infinity has NaN.
            filled = -1e30 if self.masked_score is None else self.masked_score
            least = max(filled, float(jnp.finfo(scores.dtype).min))
            scores = jnp.where(mask, scores, -jnp.inf if self.empty_row == "nan" else least)
        weights = jax.nn.softmax(scores, axis=-1)
        if mask is not None and self.empty_row == "zero":
            weights = jnp.where(mask.any(axis=-1, keepdims=True), weights, 0)
        return weights

    def needed(self, allowed: Any, valid: Any) -> Any:
        """[B, S], false at padding that nothing is to be computed with: a weight of 0 keeps out neither what overflows
        nor NaN. Uniform weights over every key are no 0: an item with a query that has no key keeps its padding.

        `allowed` [B, H, S, S] and `valid` [B, S], true where x holds data, are both bool, of NumPy or of JAX. It
        depends on the masks alone, so a batch needs it once, outside of what is compiled and not in every layer.
        """
        if self.empty_row != "uniform":
            return valid
        return valid | ~allowed.any(-1).all((1, 2))[:, None]
