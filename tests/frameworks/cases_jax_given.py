"""Layers on JAX that are given something beside x, or drop in a narrow format."""

from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
from bare_jax import layer, parameters
from cases_jax import HIDDEN, D, H, _EquinoxLayer


class NeedsThePaddingOfAnItem(_EquinoxLayer):
    """It takes one item, and needs its padding, [sequence], true = ignore. Where all is hidden all keys count alike."""

    def __init__(self) -> None:
        super().__init__(jax.random.key(0))

    def __call__(self, x: jax.Array, is_pad: jax.Array) -> jax.Array:
        y = jax.vmap(self.norm1)(x)
        x = x + self.attention(y, y, y, mask=jnp.broadcast_to(~is_pad, (len(x), len(x))))
        return x + jax.vmap(self.down)(jax.nn.relu(jax.vmap(self.up)(jax.vmap(self.norm2)(x))))


class DropsInANarrowFormat(linen.Module):
    """Its gradients in bfloat16 are no differences of its outputs in bfloat16."""

    @linen.compact
    def __call__(self, x: jax.Array, training: bool = True) -> jax.Array:
        narrow: dict[str, Any] = {"dtype": jnp.bfloat16}
        exact: dict[str, Any] = {**narrow, "epsilon": 1e-5, "use_fast_variance": False}
        y = linen.LayerNorm(**exact)(x)
        x = x + linen.MultiHeadDotProductAttention(num_heads=H, **narrow)(y)
        y = linen.relu(linen.Dense(HIDDEN, **narrow)(linen.LayerNorm(**exact)(x)))
        return x + linen.Dense(D, **narrow)(linen.Dropout(0.1)(y, deterministic=not training))


def of_a_tuple_of_angles() -> Any:
    """It turns all features at once where it is given sines and cosines, in what is annotated as a tuple alone."""

    def turning(p: Any, x: jax.Array, mask: Any = None, fixed: tuple | None = None) -> jax.Array:  # type: ignore[type-arg]
        if fixed is not None:
            sin, cos = (jnp.repeat(each, 2, -1) for each in fixed)
            x = x * cos + jnp.flip(x, -1) * sin
        return layer(p, x, mask)

    return turning, parameters()
