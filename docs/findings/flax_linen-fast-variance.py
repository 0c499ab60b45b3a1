"""Flax's LayerNorm takes the variance as E[x²] − E[x]² unless it is told not to: far from zero little of it is left.
(https://github.com/google/flax/issues/1491)"""

import flax.linen as nn
import jax
import numpy as np

x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
for mean in (0, 100, 1000, 10000):
    shifted = (x + np.float32(mean)).astype(np.float32)
    wide = shifted.astype(np.float64)
    right = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-6)
    for fast in (True, False):
        norm = nn.LayerNorm(use_fast_variance=fast)
        y = norm.apply(norm.init(jax.random.key(0), shifted), shifted)
        told = "as it comes" if fast else "use_fast_variance=False"
        print(f"mean {mean:5}, {told:23}: error {np.abs(y - right).max():.1e}")
