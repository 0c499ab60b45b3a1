"""Keras' own epsilons are 1e-3 for LayerNormalization and 1e-6 for RMSNormalization, where PyTorch's layer has 1e-5: on
a row of low variance the output is another one."""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

x = (0.01 * np.random.default_rng(0).standard_normal((1, 8))).astype("float32")
for norm in (keras.layers.LayerNormalization, keras.layers.RMSNormalization):
    print(norm.__name__, "epsilon", norm().epsilon)
    for given in ({}, {"epsilon": 1e-5}):
        print("  told", given or "nothing:        ", np.asarray(norm(**given)(x))[0, :4])
