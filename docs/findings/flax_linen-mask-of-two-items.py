"""One item with a mask of two: Flax Linen gives two items, and no error."""

import flax.linen as nn
import jax
import jax.numpy as jnp

attention = nn.MultiHeadDotProductAttention(num_heads=2)
x = jax.random.normal(jax.random.key(0), (1, 5, 8))
mask = jnp.ones((2, 1, 1, 5), bool)
y, _ = attention.init_with_output(jax.random.key(1), x, mask=mask)
print("x", x.shape, "mask", mask.shape, "output", y.shape)
