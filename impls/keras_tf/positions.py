"""What attention knows of positions: a rotation (E-22), a bias by distance (E-23), a window (E-26)."""

import math
from typing import Any

from keras import KerasTensor as Tensor
from keras import backend, layers, ops

from encoder_conformance.impls.bases.choices import RotationChoice, WindowChoice, slope_exponents


class Rotation(RotationChoice):
    def __call__(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """x [B, S, H, d] at `positions` [B or 1, S], or at 0 … S − 1."""
        turned, rest = x[..., : self.size], x[..., self.size :]
        cos, sin = self.waves(x, positions)
        if self.interleaved:
            one, two = turned[..., ::2], turned[..., 1::2]
            pairs = ops.stack([one * cos - two * sin, two * cos + one * sin], axis=-1)
            turned = ops.reshape(pairs, ops.shape(turned))
        else:
            one, two = ops.split(turned, 2, axis=-1)
            turned = ops.concatenate([one * cos - two * sin, two * cos + one * sin], axis=-1)
        return ops.concatenate([turned, rest], axis=-1)

    def waves(self, x: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
        """Cosine and sine, [S, 1, size / 2] or [B or 1, S, 1, size / 2], of angles in float32 or wider."""
        wide = backend.result_type(x.dtype, "float32")
        rates = ops.exp(ops.arange(0, self.size, 2, dtype=wide) * (-math.log(self.theta) / self.size))
        places = ops.arange(ops.shape(x)[1], dtype=wide) if positions is None else ops.cast(positions, wide)
        angles = ops.expand_dims(ops.expand_dims(places, -1) * rates, -2)
        return ops.cast(ops.cos(angles), x.dtype), ops.cast(ops.sin(angles), x.dtype)


class PositionBias(layers.Layer):
    """A bias of scores that is learned for each head and bucket of key − query, as in T5's encoder."""

    def __init__(self, buckets: int, max_distance: int, num_heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.buckets, self.max_distance, self.num_heads = buckets, max_distance, num_heads

    def build(self, shape: Any = None) -> None:
        self.table = self.add_weight(shape=(self.buckets, self.num_heads), initializer="zeros", name="table")

    def call(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[1, H, S, T] for queries [B, S, H, d] and keys [B, T, H, d]."""
        S, T = ops.shape(queries)[1], ops.shape(keys)[1]
        apart = ops.arange(T)[None] - ops.arange(S)[:, None]
        return ops.transpose(ops.take(self.table, self.bucket(apart), axis=0), (2, 0, 1))[None]

    def bucket(self, apart: Tensor) -> Tensor:
        """Half of the buckets are for keys after the query. Half of those are for one distance each."""
        half = self.buckets // 2
        exact, distance = half // 2, ops.abs(apart)
        share = ops.log(ops.cast(ops.maximum(distance, 1), "float64") / exact) / math.log(self.max_distance / exact)
        far = ops.minimum(exact + ops.cast(share * (half - exact), apart.dtype), half - 1)
        return ops.where(apart > 0, half, 0) + ops.where(distance < exact, distance, far)


class ClippedBias(PositionBias):
    """A bias that is learned for each head and distance key − query, up to a largest one on each side."""

    def bucket(self, apart: Tensor) -> Tensor:
        return ops.clip(apart, -self.max_distance, self.max_distance) + self.max_distance


class LinearBias(layers.Layer):
    """What scores lose by distance: a slope times it, a power of two for each head (ALiBi)."""

    def __init__(self, slopes: str | None, num_heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.exponents = slope_exponents(slopes, num_heads)

    def build(self, shape: Any = None) -> None:
        """There is nothing to build."""

    def call(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[1, H, S, T] for queries [B, S, H, d] and keys [B, T, H, d]."""
        S, T = ops.shape(queries)[1], ops.shape(keys)[1]
        distance = ops.abs(ops.arange(T)[None] - ops.arange(S)[:, None])
        slopes = ops.convert_to_tensor([[[2.0**each]] for each in self.exponents], dtype=queries.dtype)
        return -(slopes * ops.cast(distance, queries.dtype))[None]


class Window(WindowChoice):
    def joined(self, mask: Tensor | None, x: Tensor) -> Tensor:
        """The mask, and [1, 1, S, S] of the window, for x [B, S, D]."""
        at = ops.arange(ops.shape(x)[1])
        apart = at[None] - at[:, None]
        near = ops.logical_and(apart >= -self.left, apart <= self.right)[None, None]
        return near if mask is None else ops.logical_and(near, mask)


class Gain(layers.Layer):
    """A gain of each feature (E-31)."""

    def build(self, shape: Any) -> None:
        self.gain = self.add_weight(shape=(shape[-1],), initializer="ones", name="gain")

    def call(self, x: Tensor) -> Tensor:
        return x * self.gain
