"""A stack of encoder layers, with its embedding, positions and final norm; and attention alone.

The parameters of a stack:

    embedding, …    those of what stands before the layers (embedding.py)
    layers          "0", "1", …: those of each layer
    final_norm      those of a norm, if there is one
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from encoder_conformance.impls.bases.tap import Tap, inside, untapped
from encoder_conformance.impls.jax_pure.attention import NO_MASKS, Attention, Masks
from encoder_conformance.impls.jax_pure.dropout import undropped
from encoder_conformance.impls.jax_pure.embedding import Embedding
from encoder_conformance.impls.jax_pure.encoder import EncoderLayer
from encoder_conformance.impls.jax_pure.primitives import Norm, Tree


@dataclass(frozen=True)
class Encoder:
    """Layers one after the other (E-14), after an `embedding` and before a `norm` where there are any. A layer whose
    bias by position has no table of its own takes that of layer 0 (E-34)."""

    layers: tuple[EncoderLayer, ...]
    norm: Norm | None = None
    embedding: Embedding | None = None

    def __call__(
        self, params: Tree, x: Array, masks: Masks = NO_MASKS, tap: Tap[Array] = untapped, key: Array | None = None
    ) -> Array:
        """x [B, S, D], or token ids [B, S]. The tap is shown what goes from layer to layer, and of few layers what is
        inside. With `key`, in training: what dropout is drawn from."""
        N = len(self.layers)
        keys = [None if key is None else jax.random.fold_in(key, number) for number in range(N)]
        if masks.padding_id is not None:
            valid = x != masks.padding_id
            keys_given = valid[:, None, None]  # [B, 1, 1, S]
            allowed = keys_given if masks.allowed is None else masks.allowed & keys_given
            masks = masks._replace(allowed=allowed, valid=valid)
        if self.embedding is not None:
            own = None if key is None else jax.random.fold_in(key, N)
            x = self.embedding(params, x, masks, tap, own)
        for number, (layer, own) in enumerate(zip(self.layers, keys, strict=True)):
            held = self.held(params["layers"], number)
            x = tap(f"layer_{number}", layer(held, x, masks, inside(tap, number, N), own))
        if self.norm is not None:
            x = tap("final_norm", self.norm(params["final_norm"], x))
        return tap("output", x)

    def held(self, layers: Tree, number: int) -> Tree:
        """The parameters of layer `number`."""
        own, first = layers[str(number)], layers["0"]["attention"].get("position_bias")
        if first is None or "position_bias" in own["attention"]:
            return own
        return {**own, "attention": {**own["attention"], "position_bias": first}}


@dataclass(frozen=True)
class CrossAttention:
    """Attention alone (E-17), whose only parameters are `attention`'s."""

    attention: Attention

    def __call__(
        self, params: Tree, x: Array, memory: Array, masks: Masks = NO_MASKS, tap: Tap[Array] = untapped
    ) -> Array:
        """x [B, S, D] over `memory` [B, T, D]."""
        return tap("output", self.attention(params["attention"], x, masks, tap, undropped, memory))


def sinusoidal(x: Array, positions: Array | None = None) -> Array:
    """[S, D] in the dtype of x: sin(s / 10000^(2i / D)) at feature 2i, the cosine at 2i + 1; s counts from 0. [B or 1,
    S, D], where s is given as `positions` [B or 1, S]."""
    _, S, D = x.shape
    rates = 10000.0 ** (-jnp.arange(0, D, 2, dtype=x.dtype) / D)
    if positions is None:
        places = jax.lax.broadcasted_iota(x.dtype, (S, rates.size), 0)  # jax2onnx cannot index an arange of S
    else:
        places = positions.astype(x.dtype)[..., None]
    angles = places * rates
    return jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1).reshape(*angles.shape[:-1], -1)[..., :D]
