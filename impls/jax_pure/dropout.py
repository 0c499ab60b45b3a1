"""Dropout of a layer: the random bits of all of its sites are one draw.

Each would be a generator of its own to compile, four of which take longer than the layer.
"""

import math
from collections.abc import Callable, Mapping
from itertools import accumulate

import jax
import jax.numpy as jnp
from jax import Array

Drop = Callable[[str, float, Array], Array]
"""Does the dropout of a site at a rate, and hands what is left on."""
Sites = Mapping[str, tuple[float, tuple[int, ...]]]
"""Site → its rate, and the shape of what it drops from."""


def undropped(site: str, rate: float, x: Array) -> Array:
    return x


def drawn_bits(sites: Sites, key: Array) -> dict[str, Array]:
    """Random uint32 for each site that drops, in the shape of what it drops from."""
    shapes = {name: shape for name, (rate, shape) in sites.items() if rate}
    if not shapes:
        return {}
    ends = list(accumulate(map(math.prod, shapes.values())))
    parts = jnp.split(jax.random.bits(key, (ends[-1],), jnp.uint32), ends[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def dropped(bits: Mapping[str, Array], site: str, rate: float, x: Array) -> Array:
    if not rate:
        return x
    kept = bits[site] >= jnp.uint32(round(rate * 2**32))
    return jnp.where(kept, x / (1 - rate), 0)
