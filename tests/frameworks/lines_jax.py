"""Layers on JAX with one bug each, as people write them; `# here` ends the line that is due."""

from typing import Any

import equinox as eqx
import flax.linen as linen
import jax
import jax.numpy as jnp
from flax import nnx

D, H, HIDDEN = 16, 2, 24


class Linen(linen.Module):
    """What attention gives is normed, and added to nothing."""

    @linen.compact
    def __call__(self, x: jax.Array, *, deterministic: bool = True) -> jax.Array:
        y = linen.LayerNorm()(x)
        y = linen.MultiHeadDotProductAttention(num_heads=H, deterministic=deterministic)(y, y)  # here: Linen
        y = linen.Dropout(rate=0.1)(y, deterministic=deterministic)
        z = linen.LayerNorm()(y)
        z = linen.Dense(HIDDEN)(z)
        z = linen.gelu(z)
        z = linen.Dense(D)(z)
        return y + z


class LinenOfTheInput(linen.Module):
    """The second sum is with x, and not with the first."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = linen.LayerNorm()(x)
        y = linen.SelfAttention(num_heads=H)(y)
        y = y + x
        z = linen.LayerNorm()(y)
        z = linen.Dense(HIDDEN)(z)
        z = linen.gelu(z)
        z = linen.Dense(D)(z)
        return z + x  # here: LinenOfTheInput


class _Attention(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.query, self.key, self.value, self.out = (nnx.Linear(D, D, rngs=rngs) for _ in range(4))

    def cut(self, x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:2], H, -1).transpose(0, 2, 1, 3)

    def __call__(self, x: jax.Array) -> jax.Array:
        q, k, v = self.cut(self.query(x)), self.cut(self.key(x)), self.cut(self.value(x))
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
        weights = jax.nn.softmax(scores, axis=-2)  # here: of_nnx
        context = jnp.einsum("bhqk,bhkd->bhqd", weights, v)
        return self.out(context.transpose(0, 2, 1, 3).reshape(x.shape))


class _Nnx(nnx.Module):
    """The softmax is over the queries."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.norm1, self.norm2 = nnx.LayerNorm(D, rngs=rngs), nnx.LayerNorm(D, rngs=rngs)
        self.attention = _Attention(rngs)
        self.up, self.down = nnx.Linear(D, HIDDEN, rngs=rngs), nnx.Linear(HIDDEN, D, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm1(x))
        return x + self.down(nnx.gelu(self.up(self.norm2(x))))


def of_nnx() -> nnx.Module:
    return _Nnx(nnx.Rngs(0))


class _Equinox(eqx.Module):
    """For one item: what the network gives multiplies what skips it."""

    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        first, second, third = jax.random.split(key, 3)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(D), eqx.nn.LayerNorm(D)
        self.attention = eqx.nn.MultiheadAttention(H, D, use_query_bias=True, use_key_bias=True, key=first)
        self.up, self.down = eqx.nn.Linear(D, HIDDEN, key=second), eqx.nn.Linear(HIDDEN, D, key=third)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = jax.vmap(self.norm1)(x)
        x = x + self.attention(y, y, y)
        y = jax.vmap(self.norm2)(x)
        z = jax.vmap(self.up)(y)
        z = jax.nn.gelu(z)
        z = jax.vmap(self.down)(z)
        return x * z  # here: of_equinox


def of_equinox() -> eqx.Module:
    return _Equinox(jax.random.key(0))


def _normed(x: jax.Array, p: Any) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return p["gain"] * centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) + p["shift"]


def _cut(x: jax.Array) -> jax.Array:
    return x.reshape(*x.shape[:2], H, -1).transpose(0, 2, 1, 3)


@jax.jit
def _weights(q: jax.Array, k: jax.Array) -> jax.Array:
    scores = q @ k.swapaxes(-1, -2)
    scores = scores / (2 * q.shape[-1])  # here: function
    return jax.nn.softmax(scores)


def _layer(p: Any, x: jax.Array) -> jax.Array:
    y = _normed(x, p["norm1"])
    q, k, v = (_cut(y @ p[name] + p[f"{name}_bias"]) for name in ("query", "key", "value"))
    context = _weights(q, k) @ v
    x = x + context.transpose(0, 2, 1, 3).reshape(x.shape) @ p["out"] + p["out_bias"]
    y = jax.nn.gelu(_normed(x, p["norm2"]) @ p["up"] + p["up_bias"])
    return x + y @ p["down"] + p["down_bias"]


def function() -> Any:
    """A function of its parameters, and these: scores are divided by another number, in a part that is compiled."""
    maps = {"query": (D, D), "key": (D, D), "value": (D, D), "out": (D, D), "up": (D, HIDDEN), "down": (HIDDEN, D)}
    keys = jax.random.split(jax.random.key(0), len(maps))
    p: Any = {name: jax.random.normal(key, size) / 4 for key, (name, size) in zip(keys, maps.items(), strict=True)}
    p |= {f"{name}_bias": jnp.zeros(size[1]) for name, size in maps.items()}
    p |= {name: {"gain": jnp.ones(D), "shift": jnp.zeros(D)} for name in ("norm1", "norm2")}
    return _layer, p


class OneNormTwice(linen.Module):
    """Its second norm is called nowhere, and so it has no parameters."""

    def setup(self) -> None:
        self.norm1, self.norm2 = linen.LayerNorm(), linen.LayerNorm()
        self.attention = linen.SelfAttention(num_heads=H)
        self.up, self.down = linen.Dense(HIDDEN), linen.Dense(D)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norm1(x))
        return x + self.down(linen.gelu(self.up(self.norm1(x))))  # here: OneNormTwice


class NarrowScores(LinenOfTheInput):
    """Its softmax is in bfloat16."""

    @linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = linen.LayerNorm()(x)
        q, k, v = (linen.DenseGeneral((H, D // H))(y) for _ in range(3))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(D // H)
        weights = jax.nn.softmax(scores.astype(jnp.bfloat16), axis=-1)  # here: NarrowScores
        context = jnp.einsum("bhqk,bkhd->bqhd", weights.astype(jnp.float32), v)
        x = x + linen.DenseGeneral(D, axis=(-2, -1))(context)
        return x + linen.Dense(D)(linen.gelu(linen.Dense(HIDDEN)(linen.LayerNorm()(x))))
