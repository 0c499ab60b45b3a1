"""Linear maps and norms: functions of parameters that lack what the layer's choices leave out (L-3).

linear map      kernel, bias
norm            gain [D], shift [D]; RMSNorm has no shift, and a LayerNorm may have none (E-21)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

Tree = dict[str, Any]


def linear(p: Tree, x: Array, axes: int = 1) -> Array:
    """The last `axes` axes of x by the first ones of the kernel, and the bias if there is one.

    As a product of two matrices, to which the bias is added: the way back then has a fifth fewer kernels to compile
    than that of an einsum over heads, whose gradients are transposed one by one.
    """
    kernel = p["kernel"]
    into, out_of = kernel.shape[:axes], kernel.shape[axes:]
    rows = x.reshape(-1, math.prod(into)) @ kernel.reshape(math.prod(into), -1)
    if "bias" in p:
        rows = rows + p["bias"].reshape(-1)
    return rows.reshape(*x.shape[:-axes], *out_of)


def layer_norm(p: Tree, x: Array, *, epsilon: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    normed = p["gain"] * centred / jnp.sqrt(variance + epsilon)
    return normed + p["shift"] if "shift" in p else normed


def rms_norm(p: Tree, x: Array, *, epsilon: float) -> Array:
    return p["gain"] * x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + epsilon)


@dataclass(frozen=True)
class Norm:
    function: Callable[..., Array]
    epsilon: float

    def __call__(self, p: Tree, x: Array) -> Array:
        return self.function(p, x, epsilon=self.epsilon)
