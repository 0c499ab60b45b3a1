"""Layers in plain JAX, of which one thing is as in public repositories."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from bare_jax import D, H, Linen, layer, parameters


def function_by_deviation() -> Any:
    """Its norms add epsilon to the deviation."""

    def normed(x: jax.Array, p: Any, epsilon: float) -> jax.Array:
        return (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + epsilon) * p["g"] + p["b"]

    return (lambda p, x, mask=None: layer(p, x, mask, normed=normed)), parameters()


_TABLE = jnp.exp(1j * jnp.outer(jnp.arange(512), 10000.0 ** (-jnp.arange(0, D // H, 2) / (D // H))))


def function_of_complex_angles() -> Any:
    """It turns pairs of features by the real and the imaginary parts of a table."""

    def turned(t: jax.Array) -> jax.Array:
        cos, sin = (part[: t.shape[2]].astype(t.dtype) for part in (jnp.real(_TABLE), jnp.imag(_TABLE)))
        even, odd = t[..., 0::2], t[..., 1::2]
        return jnp.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(t.shape)

    return (lambda p, x, mask=None: layer(p, x, mask, turned=turned)), parameters()


def function_of_complex_features() -> Any:
    """It turns pairs of features as complex numbers, as Llama in JAX does."""

    def turned(t: jax.Array) -> jax.Array:
        pairs = t.reshape(*t.shape[:-1], -1, 2)
        times = jax.lax.complex(pairs[..., 0], pairs[..., 1]) * _TABLE[None, None, : t.shape[2]]
        return jnp.stack([jnp.real(times), jnp.imag(times)], -1).reshape(t.shape).astype(t.dtype)

    return (lambda p, x, mask=None: layer(p, x, mask, turned=turned)), parameters()


class LinenOfAMask(Linen):
    """Its mask has a default, None, which it does not do with."""

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array | None = None, train: bool = True) -> jax.Array:
        return Linen(self.d, self.f, self.epsilon)(x, jnp.where(mask, True, False), train)


def function_of_frequencies() -> Any:
    """As FNet: positions are mixed by a Fourier transform of two axes, of which there is no export."""

    def mixed(p: Any, x: jax.Array) -> jax.Array:
        x = x + jnp.fft.fft2(x, axes=(-2, -1)).real
        return x + jax.nn.relu(x @ p["up"]) @ p["down"]

    return mixed, {"up": jnp.full((D, 24), 0.1), "down": jnp.full((24, D), 0.1)}
