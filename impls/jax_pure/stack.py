"""A stack of encoder layers, with its embedding, positions and final norm; and attention alone.

The parameters of a stack:

    embedding       weight [V, D], if tokens come in and not x
    layers          "0", "1", …: those of each layer
    final_norm      those of a norm, if there is one
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from encoder_conformance.impls.bases.tap import Tap, inside, untapped
from encoder_conformance.impls.jax_pure.attention import NO_MASKS, Attention, Masks
from encoder_conformance.impls.jax_pure.dropout import dropped, undropped
from encoder_conformance.impls.jax_pure.encoder import EncoderLayer
from encoder_conformance.impls.jax_pure.primitives import Norm, Tree


@dataclass(frozen=True)
class Encoder:
    """`layer` as often as there are parameters of it (E-14). If tokens come in (E-15), `positions` are added to them
    (E-16), and `dropout` is the rate of the sum."""

    layer: EncoderLayer
    norm: Norm | None = None
    positions: Callable[[Array, Array | None], Array] | None = None
    dropout: float = 0.0

    def __call__(
        self, params: Tree, x: Array, masks: Masks = NO_MASKS, tap: Tap[Array] = untapped, key: Array | None = None
    ) -> Array:
        """x [B, S, D], or token ids [B, S]. The tap is shown what goes from layer to layer, and of few layers what is
        inside. With `key`, in training: what dropout is drawn from."""
        N = len(params["layers"])
        keys = [None if key is None else jax.random.fold_in(key, number) for number in range(N)]
        if masks.padding_id is not None:
            valid = (x != masks.padding_id)[:, None, None]  # [B, 1, 1, S]
            masks = masks._replace(allowed=valid if masks.allowed is None else masks.allowed & valid)
        if "embedding" in params:
            x = tap("embedded", self.embedded(params["embedding"], x, masks.positions))
            if key is not None and self.dropout:
                bits = jax.random.bits(jax.random.fold_in(key, N), x.shape, jnp.uint32)
                x = dropped({"embedded": bits}, "embedded", self.dropout, x)
        for number, own in enumerate(keys):
            layer = params["layers"][str(number)]
            x = tap(f"layer_{number}", self.layer(layer, x, masks, inside(tap, number, N), own))
        if self.norm is not None:
            x = tap("final_norm", self.norm(params["final_norm"], x))
        return tap("output", x)

    def embedded(self, p: Tree, ids: Array, positions: Array | None = None) -> Array:
        """[B, S, D]."""
        x = p["weight"][ids]
        return x if self.positions is None else x + self.positions(x, positions)


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
