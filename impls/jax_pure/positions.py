"""What attention knows of positions: a rotation (E-22), a bias by distance (E-23), a window (E-26)."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from encoder_conformance.impls.bases.choices import RotationChoice, WindowChoice
from encoder_conformance.impls.jax_pure.primitives import Tree


def counted(size: int, other: int, axis: int) -> Array:
    """[size, other], int32, counting from 0 along an axis: jax2onnx cannot index an arange of the sequence."""
    return jax.lax.broadcasted_iota(jnp.int32, (size, other), axis)


class Rotation(RotationChoice):
    def __call__(self, x: Array, positions: Array | None) -> Array:
        """x [B, S, H, d] at `positions` [B or 1, S], or at 0 … S − 1."""
        turned, rest = x[..., : self.size], x[..., self.size :]
        cos, sin = self.waves(x, positions)
        pairs = (*turned.shape[:-1], -1, 2) if self.interleaved else (*turned.shape[:-1], 2, -1)
        axis = -1 if self.interleaved else -2
        one, two = (each.squeeze(axis) for each in jnp.split(turned.reshape(pairs), 2, axis))
        pair = jnp.stack([one * cos - two * sin, two * cos + one * sin], axis)
        return jnp.concatenate([pair.reshape(turned.shape), rest], -1)

    def waves(self, x: Array, positions: Array | None) -> tuple[Array, Array]:
        """Cosine and sine, [S, 1, size / 2] or [B or 1, S, 1, size / 2], of angles in float32 or wider."""
        wide = jnp.promote_types(x.dtype, jnp.float32)
        rates = self.theta ** (-jnp.arange(0, self.size, 2, dtype=wide) / self.size)
        places = counted(x.shape[1], rates.size, 0) if positions is None else positions[..., None]
        angles = (places.astype(wide) * rates)[..., None, :]
        return jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)


@dataclass(frozen=True)
class PositionBias:
    """A bias of scores that is learned for each head and bucket of key − query, as in T5's encoder."""

    buckets: int
    max_distance: int

    def __call__(self, p: Tree, S: int, T: int) -> Array:
        """[1, H, S, T] of the table [R, H]."""
        apart = counted(S, T, 1) - counted(S, T, 0)
        return p["table"][self.bucket(apart)].transpose(2, 0, 1)[None]

    def bucket(self, apart: Array) -> Array:
        """Half of the buckets are for keys after the query. Half of those are for one distance each."""
        half = self.buckets // 2
        exact, distance = half // 2, jnp.abs(apart)
        beyond = jnp.log(jnp.maximum(distance, 1) / exact) / math.log(self.max_distance / exact)
        far = jnp.minimum(exact + (beyond * (half - exact)).astype(jnp.int32), half - 1)
        return (apart > 0) * half + jnp.where(distance < exact, distance, far)


class ClippedBias(PositionBias):
    """A bias that is learned for each head and distance key − query, up to a largest one on each side."""

    def bucket(self, apart: Array) -> Array:
        return jnp.clip(apart, -self.max_distance, self.max_distance) + self.max_distance


@dataclass(frozen=True)
class LinearBias:
    """What scores lose by distance: a slope times it, a power of two for each head (ALiBi)."""

    exponents: tuple[float, ...]

    def __call__(self, p: Tree, S: int, T: int) -> Array:
        """[1, H, S, T], float32 or wider. It has no parameters."""
        apart = counted(S, T, 1) - counted(S, T, 0)
        slopes = jnp.asarray([2.0**each for each in self.exponents])
        return -(slopes[:, None, None] * jnp.abs(apart))[None]


class Window(WindowChoice):
    def joined(self, allowed: Array | None, S: int) -> Array:
        """The mask, and that of the window, [1, 1, S, S] or as wide as the mask."""
        apart = counted(S, S, 1) - counted(S, S, 0)
        near = ((apart >= -self.left) & (apart <= self.right))[None, None]
        return near if allowed is None else near & allowed
