"""A query with no key in Keras' MultiHeadAttention: the mean of the values, or 0 where the scores are asked for.
(https://github.com/keras-team/keras/pull/21149)"""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

x = np.random.default_rng(0).standard_normal((1, 4, 8)).astype("float32")
mask = np.zeros((1, 4, 4), bool)
attention = keras.layers.MultiHeadAttention(2, key_dim=4)
print("output:                          ", np.asarray(attention(x, x, attention_mask=mask))[0, 0, :3])
both = attention(x, x, attention_mask=mask, return_attention_scores=True)
print("output with its attention scores:", np.asarray(both[0])[0, 0, :3])
