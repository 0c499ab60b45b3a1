"""Layers on JAX that are given something beside x, or drop in a narrow format."""

from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
from bare_jax import layer, parameters
from cases_jax import HIDDEN, D, H, _EquinoxLayer
from flax import nnx


class NeedsThePaddingOfAnItem(_EquinoxLayer):
    """It takes one item, and needs its padding, [sequence], true = ignore. Where all is hidden all keys count alike."""

    def __init__(self) -> None:
        super().__init__(jax.random.key(0))

    def __call__(self, x: jax.Array, is_pad: jax.Array) -> jax.Array:
        y = jax.vmap(self.norm1)(x)
        x = x + self.attention(y, y, y, mask=jnp.broadcast_to(~is_pad, (len(x), len(x))))
        return x + jax.vmap(self.down)(jax.nn.relu(jax.vmap(self.up)(jax.vmap(self.norm2)(x))))


class NeedsWhichToKeep(_EquinoxLayer):
    """It takes one item, and needs a mask of a name that nobody knows, which lies over a length, too."""

    query: eqx.nn.Linear
    key: eqx.nn.Linear
    value: eqx.nn.Linear
    output: eqx.nn.Linear

    def __init__(self) -> None:
        super().__init__(jax.random.key(0))
        self.query, self.key, self.value, self.output = (eqx.nn.Linear(D, D, key=jax.random.key(n)) for n in range(4))

    def __call__(self, x: jax.Array, keep: jax.Array) -> jax.Array:
        y = jax.vmap(self.norm1)(x)
        q, k, v = (jax.vmap(part)(y).reshape(len(x), H, -1) for part in (self.query, self.key, self.value))
        scores = jnp.einsum("qhd,khd->hqk", q, k) / (D // H) ** 0.5
        weights = jax.nn.softmax(jnp.where(keep[None, None, :], scores, -jnp.inf), -1)
        x = x + jax.vmap(self.output)(jnp.einsum("hqk,khd->qhd", weights, v).reshape(x.shape))
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


class _TurnsItsKeysElsewhere(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.q, self.k, self.v, self.o = (nnx.Linear(D, D, rngs=rngs) for _ in range(4))
        self.q_norm, self.k_norm = (nnx.RMSNorm(D // H, rngs=rngs) for _ in range(2))

    def __call__(self, x: jax.Array) -> jax.Array:
        batch, length, _ = x.shape
        q, k, v = (each(x).reshape(batch, length, H, -1) for each in (self.q, self.k, self.v))
        angles = jnp.outer(jnp.arange(length), 10000.0 ** (-jnp.arange(0, D // H, 2) / (D // H)))[:, None]
        q, k = self.turned(self.q_norm(q), angles), self.turned(self.k_norm(k), angles**2)
        return self.o(jax.nn.dot_product_attention(q, k, v).reshape(batch, length, D))

    def turned(self, t: jax.Array, angles: jax.Array) -> jax.Array:
        one, two = jnp.split(t, 2, -1)
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        return jnp.concatenate([one * cos - two * sin, two * cos + one * sin], -1)


class TurnsItsKeysElsewhere(nnx.Module):
    """Its one part that may be a layer is its attention."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.attn = _TurnsItsKeysElsewhere(rngs)
        self.norm1, self.norm2 = nnx.RMSNorm(D, rngs=rngs), nnx.RMSNorm(D, rngs=rngs)
        self.up, self.down = nnx.Linear(D, HIDDEN, rngs=rngs), nnx.Linear(HIDDEN, D, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attn(self.norm1(x))
        return x + self.down(jax.nn.relu(self.up(self.norm2(x))))


def of_a_tuple_of_angles() -> Any:
    """It turns all features at once where it is given sines and cosines, in what is annotated as a tuple alone."""

    def turning(p: Any, x: jax.Array, mask: Any = None, fixed: tuple | None = None) -> jax.Array:  # type: ignore[type-arg]
        if fixed is not None:
            sin, cos = (jnp.repeat(each, 2, -1) for each in fixed)
            x = x * cos + jnp.flip(x, -1) * sin
        return layer(p, x, mask)

    return turning, parameters()


class DrawsUnlessTold(nnx.Module):
    """What it draws its parameters with is None unless it is given, and is needed. Nothing else has a default."""

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, rngs: nnx.Rngs | None = None) -> None:
        chosen: dict[str, Any] = {"epsilon": 1e-5, "use_fast_variance": False, "rngs": rngs}
        self.norm1, self.norm2 = nnx.LayerNorm(dim, **chosen), nnx.LayerNorm(dim, **chosen)
        self.attention = nnx.MultiHeadAttention(num_heads, dim, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(dim, mlp_dim, rngs=rngs), nnx.Linear(mlp_dim, dim, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm1(x))
        return x + self.down(nnx.relu(self.up(self.norm2(x))))


class DrawsByAKeyUnlessTold(_EquinoxLayer):
    def __init__(self, key: jax.Array | None = None) -> None:
        super().__init__(jax.random.split(key)[0])

    def __call__(self, x: jax.Array) -> jax.Array:
        y = jax.vmap(self.norm1)(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(self.down)(jax.nn.relu(jax.vmap(self.up)(jax.vmap(self.norm2)(x))))


class PutsHeadsIntoTheBatch(linen.Module):
    """It gives as many items as there are heads in all, each of a head's features."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        q, k, v = (linen.DenseGeneral((H, D // H))(x) for _ in range(3))
        context = jnp.swapaxes(linen.dot_product_attention(q, k, v), 1, 2)
        return linen.Dense(D)(jnp.concatenate(list(context)))


class CallsWithTooMany(linen.Module):
    """It gives attention its mask by place, as that was once called."""

    @linen.compact
    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        y = linen.LayerNorm()(x)
        x = x + linen.MultiHeadDotProductAttention(num_heads=H)(y, y, y, mask)
        return x + linen.Dense(D)(linen.relu(linen.Dense(HIDDEN)(linen.LayerNorm()(x))))


class ClipsByAFormerName(DrawsUnlessTold):
    """It needs a mask, and calls the library by a name of which it was once told."""

    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:  # type: ignore[override]
        given: Any = jnp.clip
        x = given(
            x,
            a_greatest=9.0,
        )
        return super().__call__(x) + 0 * mask.sum()


class AddsNumbersOfDistances(linen.Module):
    """Those beyond five positions share a column."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y, at = linen.LayerNorm(use_fast_variance=False)(x), jnp.arange(x.shape[1])
        q, k, v = (linen.DenseGeneral((H, D // H))(y) for _ in range(3))
        table = self.param("table", linen.initializers.normal(1.0), (H, 11))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (D // H) ** 0.5
        weights = linen.softmax(scores + table[:, jnp.clip(at - at[:, None], -5, 5) + 5])
        x = x + linen.DenseGeneral(D, axis=(-2, -1))(jnp.einsum("bhqk,bkhd->bqhd", weights, v))
        y = linen.LayerNorm(use_fast_variance=False)(x)
        return x + linen.Dense(D)(linen.gelu(linen.Dense(HIDDEN)(y)))


class KeyOfNoPosition(linen.Module):
    """A key and a value of each head beside those of the positions."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y, drawn = linen.LayerNorm(use_fast_variance=False)(x), linen.initializers.normal(1.0)
        q, k, v = (linen.DenseGeneral((H, D // H))(y) for _ in range(3))
        own = (self.param(f"null_{name}", drawn, (H, D // H)) for name in ("key", "value"))
        k, v = (
            jnp.concatenate([each, jnp.broadcast_to(last, (len(x), 1, H, D // H))], 1)
            for each, last in zip((k, v), own, strict=True)
        )
        weights = linen.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / (D // H) ** 0.5)
        x = x + linen.DenseGeneral(D, axis=(-2, -1))(jnp.einsum("bhqk,bkhd->bqhd", weights, v))
        y = linen.LayerNorm(use_fast_variance=False)(x)
        return x + linen.Dense(D)(linen.gelu(linen.Dense(HIDDEN)(y)))


class LosesByDistance(linen.Module):
    """Of each head's scores a slope times the distance is taken, as ALiBi has it."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y, at = linen.LayerNorm(use_fast_variance=False)(x), jnp.arange(x.shape[1])
        q, k, v = (linen.DenseGeneral((H, D // H))(y) for _ in range(3))
        slopes = 2.0 ** (-8.0 * jnp.arange(1, H + 1) / H)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (D // H) ** 0.5
        weights = linen.softmax(scores - slopes[:, None, None] * jnp.abs(at - at[:, None]))
        x = x + linen.DenseGeneral(D, axis=(-2, -1))(jnp.einsum("bhqk,bkhd->bqhd", weights, v))
        y = linen.LayerNorm(use_fast_variance=False)(x)
        return x + linen.Dense(D)(linen.gelu(linen.Dense(HIDDEN)(y)))


def turned_part_by_part(x: jax.Array) -> jax.Array:
    """Rotary positions of heads [sequence, heads, d]: pairs of neighbours, each half written by itself."""
    d = x.shape[-1]
    angles = jnp.outer(jnp.arange(x.shape[0], dtype=x.dtype), 1e4 ** (-jnp.arange(0, d, 2) / d))[:, None]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    even, odd = x[..., ::2], x[..., 1::2]
    made = jnp.zeros_like(x)
    made = made.at[..., ::2].set(even * cos - odd * sin)
    return made.at[..., 1::2].set(even * sin + odd * cos)


class TurnsPartByPart(linen.Module):
    """Queries and keys are written in halves, into zeros."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = linen.LayerNorm(use_fast_variance=False)(x)
        q, k, v = (linen.Dense(D)(y).reshape(*x.shape[:-1], H, -1) for _ in range(3))
        q, k = jax.vmap(turned_part_by_part)(q), jax.vmap(turned_part_by_part)(k)
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / (D // H) ** 0.5, -1)
        x = x + linen.Dense(D)(jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape))
        y = linen.Dense(HIDDEN)(linen.LayerNorm(use_fast_variance=False)(x))
        return x + linen.Dense(D)(jax.nn.relu(y))
