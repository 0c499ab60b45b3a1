"""What Flax NNX does unless it is told: an epsilon of 1e-6, a variance taken as E[x²] − E[x]², and GELU by tanh.
(https://github.com/google/flax/issues/1491, https://github.com/jax-ml/jax/issues/4428)"""

import numpy as np
from flax import nnx
from scipy.special import erf

for norm in (nnx.LayerNorm, nnx.RMSNorm):
    print(norm.__name__, "epsilon", norm(8, rngs=nnx.Rngs(0)).epsilon)
x = np.linspace(-8, 8, 10001, dtype=np.float32)
print(f"nnx.gelu(x) from x Φ(x): {np.abs(nnx.gelu(x) - x * (1 + erf(x / np.sqrt(2))) / 2).max():.1e}")

x = (np.random.default_rng(0).standard_normal((4, 64)) + 1000).astype(np.float32)
wide = x.astype(np.float64)
right = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-6)
for fast in (True, False):
    layer_norm = nnx.LayerNorm(64, use_fast_variance=fast, rngs=nnx.Rngs(0))
    print(f"mean 1000, use_fast_variance={fast!s:5}: error {np.abs(layer_norm(x) - right).max():.1e}")
