"""What forms of several steps are made with: narrower formats, and dropout."""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

Form = Callable[..., Array]


def narrowed(x: Array, to: str) -> Array:
    """To a narrower format and back. A CPU has no tf32: 8 bits of exponent and 10 of fraction."""
    return jax.lax.reduce_precision(x, 8, 10) if to == "tf32" else x.astype(to).astype(x.dtype)


def in_float32(form: Form) -> Form:
    """Every operation in float32: operands cast before, the result cast back."""

    def narrow(*operands: Array) -> Array:
        return form(*(operand.astype(jnp.float32) for operand in operands)).astype(operands[0].dtype)

    return narrow


_drawn = itertools.count()


def dropped(x: Array) -> Array:
    """Dropout of 0.1 left on: drawn anew each time, and so no two answers are the same."""
    return jnp.where(jax.random.bernoulli(jax.random.key(next(_drawn)), 0.9, x.shape), x / 0.9, 0)
