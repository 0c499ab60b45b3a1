"""Keras drew the projections of MultiHeadAttention from a narrower range than the same map as a Dense layer. In 3.15.1
they are drawn alike (https://github.com/keras-team/keras/pull/22789)."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

D, H = 512, 8
x = np.zeros((1, 1, D), "float32")
attention, dense = keras.layers.MultiHeadAttention(H, key_dim=D // H), keras.layers.Dense(D)
attention(x, x)
dense(x)
print("kernel", attention.query_dense.kernel.shape, f"largest {np.abs(attention.query_dense.kernel).max():.4f}")
print("kernel", dense.kernel.shape, f"     largest {np.abs(dense.kernel).max():.4f}")
print(f"glorot_uniform of {D} in and {D} out is within {np.sqrt(6 / (2 * D)):.4f}")
