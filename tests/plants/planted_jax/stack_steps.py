"""The steps of a stack: each as impls/jax_pure takes it and, beside it, its wrong forms."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from encoder_conformance.impls.jax_pure.primitives import layer_norm
from encoder_conformance.impls.jax_pure.stack import sinusoidal
from planted_jax.made_of import dropped


def angles(x: Array, first: int = 0) -> Array:
    """[S, D / 2], of positions counted from `first`."""
    S, D = x.shape[1:]
    frequency = jnp.exp(jnp.arange(0, D, 2, dtype=x.dtype) * (-jnp.log(jnp.asarray(10000.0, x.dtype)) / D))
    return jnp.outer(jnp.arange(first, first + S, dtype=x.dtype), frequency)


def from_one(x: Array) -> Array:
    angle = angles(x, first=1)
    table = jnp.zeros(x.shape[1:], x.dtype).at[:, 0::2].set(jnp.sin(angle)).at[:, 1::2].set(jnp.cos(angle))
    return x + table


def normed(x: Array, epsilon: float) -> Array:
    return layer_norm({"gain": 1, "shift": 0}, x, epsilon=epsilon)


STACK: dict[str, dict[str, Any]] = {
    "tokens": {
        "standard": lambda weight, ids: weight[ids],
        "scaled": lambda weight, ids: weight[ids] * jnp.sqrt(weight.shape[1]).astype(weight.dtype),
    },
    "positions": {
        "standard": lambda x: x + sinusoidal(x),
        "missing": lambda x: x,
        "from-one": from_one,
        "halves": lambda x: x + jnp.concatenate([jnp.sin(angles(x)), jnp.cos(angles(x))], axis=-1),
        "ignored": lambda x: x + sinusoidal(x),
    },
    "after_embedding": {
        "standard": lambda x: x,
        "dropout": dropped,
    },
    "between_layers": {
        "standard": lambda x: x,
        "positions-again": lambda x: x + sinusoidal(x),
    },
    "layer_order": {  # (the layers' parameters) → of those that are run, None to pass on what came
        "standard": list,
        "without-last": lambda layers: [*layers[:-1], None],
        "first-for-all": lambda layers: layers[:1] * len(layers),
    },
    "stack_norm": {
        "standard": lambda p, x, epsilon: layer_norm(p, x, epsilon=epsilon),
        "missing": lambda p, x, epsilon: x,
    },
    "stack_end": {
        "standard": lambda x, epsilon: x,
        "normed": normed,
    },
}
