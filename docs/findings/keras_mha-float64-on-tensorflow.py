"""Keras in float64 on TensorFlow: attention's scale and GELU's constant are cast from float32.
(https://github.com/tensorflow/tensorflow/issues/57779)"""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
from scipy.special import erf, softmax

keras.config.set_dtype_policy("float64")
x = np.random.default_rng(0).standard_normal((2, 5, 6))
print(f"gelu from x Φ(x): {np.abs(keras.activations.gelu(x) - x * (1 + erf(x / np.sqrt(2))) / 2).max():.1e}")
attention = keras.layers.MultiHeadAttention(2, key_dim=3)
_, weights = attention(x, x, return_attention_scores=True)
q, k = (np.asarray(part(x)).swapaxes(1, 2) for part in (attention.query_dense, attention.key_dense))
for name, scale in (("1/√3", 1 / np.sqrt(3)), ("1/√3 in float32", float(np.float32(1 / np.sqrt(3))))):
    right = softmax(q @ k.swapaxes(-1, -2) * scale, axis=-1)
    print(f"weights from those with {name:15}: {np.abs(weights - right).max():.1e}")
