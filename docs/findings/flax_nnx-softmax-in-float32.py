"""Flax NNX's MultiHeadAttention in float64 is good to float32: jax.nn.dot_product_attention casts its scores.

Ask for the weights, or for dropout, and it takes another road, which is good to float64.
(https://github.com/jax-ml/jax/issues/37422)"""

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from flax import nnx  # noqa: E402

attention = nnx.MultiHeadAttention(2, 8, decode=False, param_dtype=jnp.float64, rngs=nnx.Rngs(0))
x = jax.random.normal(jax.random.key(0), (2, 5, 8), jnp.float64)
q, k, v = (np.asarray(part(x)).swapaxes(1, 2) for part in (attention.query, attention.key, attention.value))
scores = q @ k.swapaxes(-1, -2) / np.sqrt(4)
weights = np.exp(scores - scores.max(-1, keepdims=True))
context = weights / weights.sum(-1, keepdims=True) @ v
right = np.asarray(attention.out(jnp.asarray(context.swapaxes(1, 2))))
print("dtype of the output:", attention(x).dtype)
print(f"as it comes:       error {np.abs(attention(x) - right).max():.1e}")
print(f"sow_weights=True:  error {np.abs(attention(x, sow_weights=True) - right).max():.1e}")
