"""jax.nn.gelu, which a block in Equinox takes for its activation, is the one by tanh unless it is told otherwise.
(https://github.com/jax-ml/jax/issues/4428)"""

import equinox as eqx
import jax
import numpy as np
from scipy.special import erf

x = np.linspace(-8, 8, 10001, dtype=np.float32)
right = x * (1 + erf(x.astype(np.float64) / np.sqrt(2))) / 2
mlp = eqx.nn.MLP(1, 1, 1, depth=1, activation=jax.nn.gelu, key=jax.random.key(0))
print(f"activation=jax.nn.gelu:      error {np.abs(mlp.activation(x) - right).max():.1e}")
print(f"gelu(x, approximate=False):  error {np.abs(jax.nn.gelu(x, approximate=False) - right).max():.1e}")
