"""A query with no key: Equinox puts the lowest number in the place of every score, and gives the mean of all values."""

import equinox as eqx
import jax
import jax.numpy as jnp

attention = eqx.nn.MultiheadAttention(2, 8, key=jax.random.key(0))
x = jax.random.normal(jax.random.key(1), (5, 8))
mask = jnp.ones((5, 5), bool).at[3].set(False)
given = attention(x, x, x, mask)
mean = jax.vmap(attention.output_proj)(jax.vmap(attention.value_proj)(x).mean(0, keepdims=True))
print("query 3, which has no key:", given[3, :3])
print("the mean of all values:   ", mean[0, :3])
