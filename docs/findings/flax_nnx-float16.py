"""Flax NNX's MultiHeadAttention under jit is an error in float16 on the CPU: jax.nn.dot_product_attention falls back to
another product where its own is refused, but under jit it is refused only after that."""

import jax
import jax.numpy as jnp
from flax import nnx

attention = nnx.MultiHeadAttention(2, 8, decode=False, dtype=jnp.float16, param_dtype=jnp.float16, rngs=nnx.Rngs(0))
x = jax.random.normal(jax.random.key(0), (1, 5, 8), jnp.float16)
for name, call in (("as it comes", attention), ("under jit", lambda x: nnx.jit(lambda a, x: a(x))(attention, x))):
    try:
        print(f"{name}:", call(x).dtype)
    except ValueError as error:
        print(f"{name}: ValueError: {error}")
