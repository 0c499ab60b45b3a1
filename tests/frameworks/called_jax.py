"""Right layers on JAX that are called otherwise than with x [batch, sequence, d_model] and a mask."""

from dataclasses import dataclass
from typing import Any

import bare_jax as bare
import flax.linen as nn
import jax
import jax.numpy as jnp


def _of(called: Any) -> Any:
    """A function of its parameters, and these."""
    return called, bare.parameters()


def plain() -> Any:
    return bare.function


def of_positions() -> Any:
    def layer(p: Any, x: jax.Array, *, positions: jax.Array) -> jax.Array:
        if positions.shape != x.shape[:2]:
            raise ValueError(f"positions {positions.shape}")
        return bare.layer(p, x + 0 * positions[..., None])

    return _of(layer)


def of_positions_in_numpy() -> Any:
    """NumPy asks a mapping in the place of x for the names and formats of a dtype."""

    def layer(p: Any, x: jax.Array, *, positions: jax.Array) -> jax.Array:
        kind = jnp.result_type(x)
        if positions.shape != x.shape[:2]:
            raise ValueError(f"positions {positions.shape}")
        return bare.layer(p, x.astype(kind) + 0 * positions[..., None])

    return _of(layer)


def of_a_key() -> Any:
    def layer(p: Any, x: jax.Array, key: jax.Array) -> jax.Array:
        return bare.layer(p, x + 0 * jax.random.normal(key, x.shape))

    return _of(layer)


def of_a_mask() -> Any:
    """A mask that it needs, true at positions that are there."""

    def layer(p: Any, x: jax.Array, attention_mask: jax.Array) -> jax.Array:
        return bare.layer(p, x, attention_mask == 0)

    return _of(layer)


def of_lengths() -> Any:
    def layer(p: Any, x: jax.Array, lengths: jax.Array) -> jax.Array:
        return bare.layer(p, x, jnp.arange(x.shape[1])[None] >= lengths[:, None])

    return _of(layer)


def of_a_mapping() -> Any:
    def layer(p: Any, batch: Any) -> Any:
        return {"hidden": bare.layer(p, batch["hidden"], batch.get("padding_mask"))}

    return _of(layer)


def of_a_tuple() -> Any:
    def layer(p: Any, batch: Any) -> jax.Array:
        x, mask = batch
        return bare.layer(p, x, mask)

    return _of(layer)


@dataclass
class Output:
    last_hidden_state: jax.Array


def by_keyword_alone() -> Any:
    return _of(lambda p, *, hidden_states, mask=None: Output(bare.layer(p, hidden_states, mask)))


def sequence_last() -> Any:
    return _of(lambda p, x, mask=None: bare.layer(p, x.swapaxes(1, 2), mask).swapaxes(1, 2))


class LinenOfPositions(nn.Module):
    """Its parameters are made when it is first called, which needs positions, too."""

    @nn.compact
    def __call__(self, x: jax.Array, positions: jax.Array, train: bool = False) -> jax.Array:
        if positions.shape != x.shape[:2]:
            raise ValueError(f"positions {positions.shape}")
        return bare.Linen()(x + 0 * positions[..., None], train=train)


class LinenOfAKind(nn.Module):
    """Nothing that is tried says what `kind` is, and its parameters are made when it is first called."""

    @nn.compact
    def __call__(self, x: jax.Array, kind: str, train: bool = False) -> jax.Array:
        if kind != "encoder":
            raise ValueError(f"no kind {type(kind).__name__}")
        return bare.Linen()(x, train=train)


class EquinoxOfAKey(bare.Equinox):
    """Of one item; it needs a key in evaluation, too."""

    def __call__(self, x: jax.Array, mask: jax.Array | None = None, *, key: jax.Array) -> jax.Array:
        return super().__call__(x + 0 * jax.random.normal(key, x.shape), mask)


class EquinoxSplitsItsKey(bare.Equinox):
    """It splits a key in evaluation, too, which is None by default."""

    def __call__(self, x: jax.Array, mask: jax.Array | None = None, dropout_key: jax.Array | None = None) -> jax.Array:
        first, _ = jax.random.split(dropout_key)
        return super().__call__(x + 0 * jax.random.normal(first, x.shape), mask)


class EquinoxOfPositions(bare.Equinox):
    def __call__(self, x: jax.Array, positions: jax.Array, mask: jax.Array | None = None) -> jax.Array:
        if positions.shape != x.shape[:1]:
            raise ValueError(f"positions {positions.shape}")
        return super().__call__(x + 0 * positions[:, None], mask)
