"""Modules on JAX that nobody wrote an adapter for: NNX, Linen, Equinox and a function. Targets of `conform check`."""

from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx

D, H, F = 16, 2, 24


class Nnx(nnx.Module):
    """A pre-norm layer by Flax's own attention, with its defaults but for the exact GELU and variance."""

    fast = False

    def __init__(self, d: int = D, h: int = H, f: int = F, epsilon: float = 1e-6, rngs: nnx.Rngs | None = None) -> None:
        rngs = rngs or nnx.Rngs(0)
        self.norm1, self.norm2 = (
            nnx.LayerNorm(d, epsilon=epsilon, use_fast_variance=self.fast, rngs=rngs) for _ in range(2)
        )
        self.attention = nnx.MultiHeadAttention(h, d, dropout_rate=0.1, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(d, f, rngs=rngs), nnx.Linear(f, d, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def activation(self, x: jax.Array) -> jax.Array:
        return jax.nn.gelu(x, approximate=False)

    def first(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x + y

    def __call__(self, x: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        x = self.first(x, self.dropout(self.attention(self.norm1(x), mask=mask)))
        return x + self.down(self.activation(self.up(self.norm2(x))))


class NnxTanh(Nnx):
    def activation(self, x: jax.Array) -> jax.Array:
        return jax.nn.gelu(x)


class NnxFast(Nnx):
    """With Flax's own variance, E[x²] − E[x]²: at a power of two of features small integers do not show it."""

    fast = True

    def __init__(self) -> None:
        super().__init__(epsilon=1e-5)


class NnxNoResidual(Nnx):
    def first(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return y


class NnxEpsilon(Nnx):
    def __init__(self) -> None:
        super().__init__(epsilon=1e-3)


class Linen(nn.Module):
    """A post-norm layer whose parameters are made when it is first called."""

    d: int = D
    f: int = F
    epsilon: float = 1e-6

    def activation(self, x: jax.Array) -> jax.Array:
        return nn.relu(x)

    def second(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x + y

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array | None = None, train: bool = True) -> jax.Array:
        y = nn.MultiHeadDotProductAttention(H, dropout_rate=0.1, deterministic=not train)(x, x, mask=mask)
        x = nn.LayerNorm(epsilon=self.epsilon, use_fast_variance=False)(x + nn.Dropout(0.1, deterministic=not train)(y))
        y = nn.Dense(self.d)(self.activation(nn.Dense(self.f)(x)))
        return nn.LayerNorm(epsilon=self.epsilon, use_fast_variance=False)(self.second(x, y))


class LinenFast(nn.Module):
    """A pre-norm layer with Flax' own LayerNorm in its own format, whose width is a power of two."""

    d: int = 128

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.LayerNorm(dtype=jnp.float32)(x)
        x = x + nn.MultiHeadDotProductAttention(4, dtype=jnp.float32)(y, y)
        y = nn.gelu(nn.Dense(self.d)(nn.LayerNorm(dtype=jnp.float32)(x)))
        return x + nn.Dense(self.d)(y)


class LinenFastNarrow(LinenFast):
    d: int = 64


class LinenSilu(Linen):
    def activation(self, x: jax.Array) -> jax.Array:
        return nn.silu(x)


class LinenTwice(Linen):
    def second(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return 2 * x + y


def linen_epsilon() -> nn.Module:
    return Linen(epsilon=1e-3)


def linen_with_variables() -> Any:
    return Linen(), Linen().init(jax.random.key(1), jnp.zeros((1, 2, D)), train=False)


class LinenOfMlpDim(nn.Module):
    """As published ViTs have it: the width is that of x, and no field."""

    mlp_dim: int
    num_heads: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.LayerNorm(use_fast_variance=False)(x)
        x = x + nn.MultiHeadDotProductAttention(self.num_heads)(y, y)
        y = nn.relu(nn.Dense(self.mlp_dim)(nn.LayerNorm(use_fast_variance=False)(x)))
        return x + nn.Dense(x.shape[-1])(y)


class LinenModel(nn.Module):
    """Token ids through two layers of one kind."""

    @nn.compact
    def __call__(self, ids: jax.Array, train: bool = True) -> jax.Array:
        x = nn.Embed(10, D)(ids)
        for number in range(2):
            x = Linen(name=f"layer_{number}")(x, train=train)
        return x


class Equinox(eqx.Module):
    """A pre-norm layer of one item, by Equinox's own attention."""

    norm1: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    norm2: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, epsilon: float = 1e-5) -> None:
        keys = jax.random.split(jax.random.key(0), 3)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(D, eps=epsilon), eqx.nn.LayerNorm(D, eps=epsilon)
        biased = dict.fromkeys(("use_query_bias", "use_key_bias", "use_value_bias", "use_output_bias"), True)
        self.attention = eqx.nn.MultiheadAttention(H, D, dropout_p=0.1, key=keys[0], **biased)
        self.up, self.down = eqx.nn.Linear(D, F, key=keys[1]), eqx.nn.Linear(F, D, key=keys[2])

    def activation(self, x: jax.Array) -> jax.Array:
        return jax.nn.gelu(x, approximate=False)

    def first(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return x + y

    def __call__(self, x: jax.Array, mask: jax.Array | None = None, *, key: jax.Array | None = None) -> jax.Array:
        y = jax.vmap(self.norm1)(x)
        x = self.first(x, self.attention(y, y, y, mask, key=key))
        y = jax.vmap(self.norm2)(x)
        return x + jax.vmap(lambda row: self.down(self.activation(self.up(row))))(y)


class EquinoxTanh(Equinox):
    def activation(self, x: jax.Array) -> jax.Array:
        return jax.nn.gelu(x)


class EquinoxEpsilon(Equinox):
    def __init__(self) -> None:
        super().__init__(epsilon=1e-3)


class EquinoxNoResidual(Equinox):
    def first(self, x: jax.Array, y: jax.Array) -> jax.Array:
        return y


def norm(x: jax.Array, p: Any, epsilon: float) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * p["g"] + p["b"]


def layer(p: Any, x: jax.Array, mask: Any = None, *, epsilon: float = 1e-5, head: float = (D // H) ** 0.5,
          activation: Any = jax.nn.relu, normed: Any = norm,
          turned: Any = lambda t: t) -> jax.Array:  # fmt: skip
    """A post-norm layer as a function of a tree of arrays; a mask [B, S] is true at padding."""
    q, k, v = (jnp.einsum("bsd,dhk->bhsk", x, p[n]["w"]) + p[n]["b"][:, None] for n in ("wq", "wk", "wv"))
    scores = jnp.einsum("bhik,bhjk->bhij", turned(q), turned(k)) / head
    if mask is not None:
        scores = jnp.where(mask[:, None, None, :], -jnp.inf, scores)
    context = jnp.einsum("bhij,bhjk->bhik", jax.nn.softmax(scores), v)
    x = normed(x + jnp.einsum("bhik,hkd->bid", context, p["wo"]["w"]) + p["wo"]["b"], p["n1"], epsilon)
    hidden = activation(x @ p["up"]["w"] + p["up"]["b"])
    return normed(x + hidden @ p["down"]["w"] + p["down"]["b"], p["n2"], epsilon)


def parameters() -> Any:
    keys = iter(jax.random.split(jax.random.key(0), 32))

    def drawn(*shape: int) -> jax.Array:
        return 0.3 * jax.random.normal(next(keys), shape)

    heads = {name: {"w": drawn(D, H, D // H), "b": drawn(H, D // H)} for name in ("wq", "wk", "wv")}
    norms = {name: {"g": 1 + drawn(D), "b": drawn(D)} for name in ("n1", "n2")}
    out = {"wo": {"w": drawn(H, D // H, D), "b": drawn(D)}}
    return {**heads, **norms, **out, "up": {"w": drawn(D, F), "b": drawn(F)}, "down": {"w": drawn(F, D), "b": drawn(D)}}


function = (layer, parameters())


def function_epsilon() -> Any:
    return (lambda p, x, mask=None: layer(p, x, mask, epsilon=1e-3)), parameters()


def function_scale() -> Any:
    return (lambda p, x, mask=None: layer(p, x, mask, head=D**0.5)), parameters()


def function_silu() -> Any:
    return (lambda p, x, mask=None: layer(p, x, mask, activation=jax.nn.silu)), parameters()
