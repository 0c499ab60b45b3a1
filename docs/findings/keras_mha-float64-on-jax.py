"""Keras in float64 on JAX: LayerNormalization and MultiHeadAttention give float64 that is good to float32."""

import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_ENABLE_X64"] = "1"
import keras
import numpy as np
from scipy.special import softmax

keras.config.set_dtype_policy("float64")
x = np.random.default_rng(0).standard_normal((2, 5, 6))
y = np.asarray(keras.layers.LayerNormalization()(x))
right = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
print(f"LayerNormalization gives {y.dtype}: error {np.abs(y - right).max():.1e}")
attention = keras.layers.MultiHeadAttention(2, key_dim=3)
y, weights = attention(x, x, return_attention_scores=True)
q, k = (np.asarray(part(x)).swapaxes(1, 2) for part in (attention.query_dense, attention.key_dense))
right = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(3), axis=-1)
print(f"the weights are {np.asarray(weights).dtype}: error {np.abs(weights - right).max():.1e}")
