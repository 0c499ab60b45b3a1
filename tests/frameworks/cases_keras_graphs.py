"""Functional models of Keras whose layers are no parts of them: each stands in the graph, operation after operation."""

from typing import Any

import keras
import numpy as np
from keras import layers, ops


def _post(x: Any, mask: Any = None) -> Any:
    x = layers.LayerNormalization(epsilon=1e-5)(x + layers.MultiHeadAttention(4, 16)(x, x, attention_mask=mask))
    return layers.LayerNormalization(epsilon=1e-5)(x + layers.Dense(64)(layers.Dense(96, activation="relu")(x)))


def _pre(x: Any) -> Any:
    normed = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Add()([x, layers.Dropout(0.1)(layers.MultiHeadAttention(4, 16)(normed, normed))])
    normed = layers.LayerNormalization(epsilon=1e-6)(x)
    return layers.Add()([x, layers.Dense(64)(layers.Dense(96, activation="gelu")(normed))])


def of_ids() -> keras.Model:
    """Its mask is made of its ids."""
    ids = keras.Input((None,), dtype="int32")
    x = layers.Dropout(0.1)(layers.Embedding(40, 64)(ids))
    for _ in range(2):
        x = _post(x, ops.not_equal(ids, 0)[:, None, :])
    return keras.Model(ids, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))


def of_a_mask() -> keras.Model:
    ids, mask = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="bool", name="padding_mask")
    return keras.Model([ids, mask], layers.Dense(40)(_post(layers.Embedding(40, 64)(ids), mask[:, None, :])))


def of_a_series() -> keras.Model:
    """Of one length, with a head that sees all positions."""
    series = keras.Input((24, 7))
    return keras.Model(series, layers.Dense(1)(layers.Flatten()(_pre(layers.Dense(64)(series)))))


def of_an_image() -> keras.Model:
    image = keras.Input((32, 32, 3))
    patches = layers.Reshape((16, 64))(layers.Conv2D(64, 8, 8)(image))
    x = _pre(_pre(patches + layers.Embedding(16, 64)(ops.arange(16))))
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    return keras.Model(image, layers.Dense(10)(layers.GlobalAveragePooling1D()(x)))


def of_no_sum() -> keras.Model:
    """Nothing skips its attention."""
    ids = keras.Input((None,), dtype="int32")
    x = layers.Embedding(40, 64)(ids)
    for _ in range(2):
        x = layers.LayerNormalization(epsilon=1e-5)(layers.MultiHeadAttention(4, 16)(x, x))
        x = layers.LayerNormalization(epsilon=1e-5)(x + layers.Dense(64)(layers.Dense(96, activation="relu")(x)))
    return keras.Model(ids, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))


def of_columns() -> keras.Model:
    """Of five, as many positions as a probe has, each with a table of its own."""
    columns = [keras.Input((), dtype="int32") for _ in range(5)]
    x = _post(ops.stack([layers.Embedding(10, 64)(each) for each in columns], axis=1))
    return keras.Model(columns, layers.Dense(1)(layers.Flatten()(x)))


def of_many_patches() -> keras.Model:
    """Of a number of positions that nobody would try."""
    patches = keras.Input((70, 12))
    return keras.Model(patches, layers.Dense(1)(layers.GlobalAveragePooling1D()(_pre(layers.Dense(64)(patches)))))


def of_one_feature() -> keras.Model:
    """Its norms give their shift, whatever they are given."""
    series = keras.Input((None, 1))
    x = layers.LayerNormalization()(series + layers.MultiHeadAttention(4, 16)(series, series))
    x = layers.LayerNormalization()(x + layers.Dense(1)(layers.Dense(8, activation="relu")(x)))
    return keras.Model(series, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))


def of_three_ids() -> keras.Model:
    """Whether one counts stands in a table, which each layer asks again."""
    ids, counts = keras.Input((None,), dtype="int32"), np.array([0, 1, 1])
    x = layers.Embedding(3, 64)(ids)
    for _ in range(2):
        x = _post(x, ops.equal(ops.take(counts, ids), 1)[:, None, :])
    return keras.Model(ids, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))
