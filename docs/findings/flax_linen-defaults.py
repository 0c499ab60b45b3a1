"""What Flax does unless it is told: an epsilon of 1e-6, GELU by tanh, and dropout of the weights once for all items."""

import flax.linen as nn
import jax
import numpy as np
from scipy.special import erf

print("LayerNorm().epsilon:", nn.LayerNorm().epsilon)
x = np.linspace(-8, 8, 10001)
print(f"nn.gelu(x) from x Φ(x): {np.abs(nn.gelu(x) - x * (1 + erf(x / np.sqrt(2))) / 2).max():.1e}")

attention = nn.MultiHeadDotProductAttention(num_heads=2, dropout_rate=0.5, deterministic=False)
x = jax.numpy.ones((3, 6, 8))
keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
_, seen = attention.init_with_output(keys, x, sow_weights=True)
y = attention.apply({"params": seen["params"]}, x, rngs={"dropout": jax.random.key(2)})
print("three equal items in training, dropped alike:", bool((y[0] == y[1]).all() and (y[0] == y[2]).all()))
