"""Equinox's MultiheadAttention with heads that do not divide the size: it rounds down, and says nothing."""

import equinox as eqx
import jax

attention = eqx.nn.MultiheadAttention(num_heads=5, query_size=24, key=jax.random.key(0))
print("5 heads of 24 features: query_proj gives", attention.query_proj.out_features, "features")
print("output:", attention(*[jax.numpy.ones((3, 24))] * 3).shape)
