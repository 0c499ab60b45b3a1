"""MultiHeadAttention and RMSNormalization that were built for eight features take an x of one, and nothing is said: on
TensorFlow attention gives eight items for one, or 16 for two. On JAX it is (1, 4, 8), the one feature taken for all."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

attention, norm = keras.layers.MultiHeadAttention(2, key_dim=4), keras.layers.RMSNormalization()
for features in (8, 1, 9):
    x = np.ones((1, 4, features), "float32")
    for layer, given in ((attention, (x, x)), (norm, (x,))):
        try:
            print(type(layer).__name__, x.shape, "to", layer(*given).shape)
        except Exception as error:
            print(type(layer).__name__, x.shape, type(error).__name__)
