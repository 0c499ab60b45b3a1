"""Fresh parameters of an encoder: what a layer or a stack of them begins training with."""

import math
from functools import partial
from itertools import accumulate
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.tree_util import keystr, tree_flatten_with_path, tree_unflatten

from encoder_conformance.impls.jax_pure.primitives import Tree

BLOCK = 2**16
"""Elements that initial parameters are drawn in."""


@partial(jax.jit, static_argnums=1)
def drawn_block(key: Array, dtype: Any) -> Array:
    return jax.random.uniform(key, (BLOCK,), dtype, -1, 1)


def initial(like: Tree, key: Array) -> Tree:
    """Fresh parameters in the shapes and dtypes of `like`: Xavier uniform kernels, biases and shifts of 0, gains of 1.

    Fans are those of the matrices: [D, H, d] is D × D, and so is [H, d, D]. They are drawn in blocks of one size, so
    that the generator, which takes as long to compile as a layer, is compiled once for all layers of a dtype.
    """
    leaves, tree = tree_flatten_with_path(like)
    named = {keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}
    kernels = {name: leaf for name, leaf in named.items() if name.endswith("kernel")}
    ends = list(accumulate(leaf.size for leaf in kernels.values()))
    dtype = next(iter(kernels.values())).dtype
    keys = (jax.random.fold_in(key, number) for number in range(-(-ends[-1] // BLOCK)))
    blocks = [np.asarray(drawn_block(own, dtype)) for own in keys]
    parts = dict(zip(kernels, np.split(np.concatenate(blocks)[: ends[-1]], ends[:-1]), strict=True))
    made = []
    for name, leaf in named.items():
        if name in parts:
            axes = 2 if name.endswith("attention.output.kernel") else 1
            fans = math.prod(leaf.shape[:axes]) + math.prod(leaf.shape[axes:])
            made.append(jax.device_put(parts[name].reshape(leaf.shape) * dtype.type(math.sqrt(6 / fans))))
        else:
            made.append(jax.device_put(np.full(leaf.shape, 1 if name.endswith("gain") else 0, leaf.dtype)))
    return tree_unflatten(tree, made)
