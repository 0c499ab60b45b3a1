"""Functional models of Keras, of which one thing is as in public repositories."""

from typing import Any

import keras
from bare_keras import D, H

HIDDEN = 24


class Attention(keras.layers.Layer):
    """Takes all in one mapping; its mask is of numbers, and 1 hides: it is added, times −1e9."""

    def build(self, shapes: Any) -> None:
        self.maps = [keras.layers.Dense(D) for _ in range(4)]
        for each in self.maps:
            each.build(shapes["query"])

    def call(self, inputs: Any) -> Any:
        x, mask = inputs["query"], inputs["mask"]
        n = keras.ops.shape(x)[1]
        heads = [keras.ops.reshape(each(x), (-1, n, H, D // H)) for each in self.maps[:3]]
        q, k, v = (keras.ops.transpose(each, (0, 2, 1, 3)) for each in heads)
        scores = keras.ops.matmul(q, keras.ops.transpose(k, (0, 1, 3, 2))) / (D // H) ** 0.5 + mask * -1e9
        context = keras.ops.matmul(keras.ops.softmax(scores), v)
        return self.maps[3](keras.ops.reshape(keras.ops.transpose(context, (0, 2, 1, 3)), (-1, n, D)))


def functional_added() -> Any:
    x, mask = keras.Input((None, D)), keras.Input((1, 1, None), name="padding_mask")
    y = keras.layers.LayerNormalization(epsilon=1e-6)(x + Attention()({"query": x, "mask": mask}))
    z = keras.layers.Dense(D)(keras.layers.Dense(HIDDEN, activation="relu")(y))
    return keras.Model([x, mask], keras.layers.LayerNormalization(epsilon=1e-6)(y + z))


class ByAttribute(keras.layers.Layer):
    """Its maps have names as attributes alone: Keras calls them dense and dense_1. `exchanged`: wq makes the keys."""

    def __init__(self, exchanged: bool = False) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo, self.down = (keras.layers.Dense(D) for _ in range(5))
        self.up, self.exchanged = keras.layers.Dense(HIDDEN, activation="relu"), exchanged
        self.norm1, self.norm2 = (keras.layers.LayerNormalization(epsilon=1e-5) for _ in range(2))

    def call(self, x: Any) -> Any:
        n = keras.ops.shape(x)[1]
        maps = (self.wk, self.wq, self.wv) if self.exchanged else (self.wq, self.wk, self.wv)
        heads = [keras.ops.reshape(each(x), (-1, n, H, D // H)) for each in maps]
        q, k, v = (keras.ops.transpose(each, (0, 2, 1, 3)) for each in heads)
        weights = keras.ops.softmax(keras.ops.matmul(q, keras.ops.transpose(k, (0, 1, 3, 2))) / (D // H) ** 0.5)
        context = keras.ops.transpose(keras.ops.matmul(weights, v), (0, 2, 1, 3))
        x = self.norm1(x + self.wo(keras.ops.reshape(context, (-1, n, D))))
        return self.norm2(x + self.down(self.up(x)))
