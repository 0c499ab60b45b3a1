"""A query with no key: Flax puts the lowest number in the place of every score, and gives each key a weight of 1/S."""

import jax
import jax.numpy as jnp
from flax import linen as nn

x = jax.random.normal(jax.random.key(1), (1, 5, 8))
mask = jnp.ones((1, 1, 5, 5), bool).at[:, :, 3].set(False)
attention = nn.MultiHeadDotProductAttention(num_heads=2)
_, seen = attention.init_with_output(jax.random.key(0), x, mask=mask, sow_weights=True, mutable=True)
_, kept = attention.apply({"params": seen["params"]}, x, mask=mask, sow_weights=True, mutable=["intermediates"])
print("weights of query 3, which has no key:", kept["intermediates"]["attention_weights"][0][0, 0, 3])
