"""A query with no key: Flax NNX puts the lowest number in the place of each score, and gives the mean of all values."""

import jax
import jax.numpy as jnp
from flax import nnx

attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=nnx.Rngs(0))
x = jax.random.normal(jax.random.key(1), (1, 5, 8))
mask = jnp.ones((1, 1, 5, 5), bool).at[:, :, 3].set(False)
mean = attention.out(attention.value(x).mean(axis=1, keepdims=True))
print("query 3, which has no key:", attention(x, mask=mask)[0, 3, :3])
print("the mean of all values:   ", mean[0, 0, :3])
