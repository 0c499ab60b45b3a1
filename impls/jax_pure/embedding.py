"""What stands before the layers of a stack. The parameters, each if the stack has it:

embedding               weight [V, D], if tokens come in and not x
token_type_embedding    weight [U, D]
position_embedding      weight [L, D]
embedding_norm          those of a norm
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from encoder_conformance.impls.bases.tap import Tap
from encoder_conformance.impls.jax_pure.attention import Masks
from encoder_conformance.impls.jax_pure.dropout import dropped
from encoder_conformance.impls.jax_pure.primitives import Norm, Tree


@dataclass(frozen=True)
class LearnedPositions:
    """A row of a table for each position, that of position 0 at `first` (E-37). `skips_padding`: padding has none."""

    first: int
    skips_padding: bool

    def __call__(self, p: Tree, x: Array, masks: Masks) -> Array:
        """[B or 1, S, D] for x [B, S, …]."""
        if masks.positions is not None:
            at = masks.positions.astype(jnp.int32)
        elif self.skips_padding and masks.valid is not None:
            at = jnp.cumsum(masks.valid.astype(jnp.int32), axis=1) - 1
        else:
            at = jax.lax.broadcasted_iota(jnp.int32, (1, x.shape[1]), 1)
        # What is padding has any row: where it counts for nothing, JAX would take the last for one before the first.
        return p["weight"][jnp.maximum(at + self.first, 0)]


@dataclass(frozen=True)
class Embedding:
    """The sum of token rows (E-15), multiplied by `scale` (E-35), or of x where there are no tokens (E-39), of the rows
    of their types (E-36), and of positions (E-16, E-37); normed (E-38). `dropout` is the rate of what that gives."""

    scale: float = 1.0
    sinusoidal: Callable[[Array, Array | None], Array] | None = None
    learned: LearnedPositions | None = None
    norm: Norm | None = None
    dropout: float = 0.0

    def __call__(self, params: Tree, x: Array, masks: Masks, tap: Tap[Array], key: Array | None = None) -> Array:
        """[B, S, D] of token ids [B, S] or of x [B, S, D]. With `key`, in training: what dropout is drawn from."""
        if "embedding" in params:
            x = params["embedding"]["weight"][x]
            x = x if self.scale == 1.0 else x * self.scale
        if "token_type_embedding" in params:
            x = x + params["token_type_embedding"]["weight"][0 if masks.types is None else masks.types]
        if self.sinusoidal is not None:
            x = x + self.sinusoidal(x, masks.positions)
        if self.learned is not None:
            x = x + self.learned(params["position_embedding"], x, masks)
        if self.norm is not None:
            x = self.norm(params["embedding_norm"], tap("embedding_sum", x))
        x = tap("embedded", x)
        if key is None or not self.dropout:
            return x
        return dropped({"embedded": jax.random.bits(key, x.shape, jnp.uint32)}, "embedded", self.dropout, x)
