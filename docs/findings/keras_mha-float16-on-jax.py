"""Keras' MultiHeadAttention on JAX is an error in float16 on the CPU where it is compiled, as by predict and fit, and
not where it is called as it comes. (https://github.com/keras-team/keras-hub/pull/2354)"""

import os

os.environ["KERAS_BACKEND"] = "jax"
import keras
import numpy as np

x = np.random.default_rng(0).standard_normal((1, 5, 8)).astype("float16")
given = keras.Input((5, 8), dtype="float16")
model = keras.Model(given, keras.layers.MultiHeadAttention(2, key_dim=4, dtype="float16")(given, given))
for name, call in (("called", model), ("predict", lambda x: model.predict(x, verbose=0))):
    try:
        print(f"{name}:", call(x).dtype)
    except ValueError as error:
        print(f"{name}: ValueError:", str(error).splitlines()[0])
