"""Functional models of Keras, of which one thing is as in public repositories."""

from typing import Any

import keras
from bare_keras import Block, ByAttribute, D, H, MadeInBuild

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


class NormOfTensors(keras.layers.Layer):
    """Its gain and its shift are tensors, and no variables: they hold what they were made with."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.shift = keras.ops.ones((D,)), keras.ops.zeros((D,))

    def call(self, x: Any) -> Any:
        deviation = keras.ops.sqrt(keras.ops.var(x, -1, keepdims=True) + 1e-5)
        return self.gain * (x - keras.ops.mean(x, -1, keepdims=True)) / deviation + self.shift


class NormsOfTensors(MadeInBuild):
    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.norm1, self.norm2 = NormOfTensors(), NormOfTensors()


class InATuple(Block):
    """It takes x and its mask in one argument, as layers of Keras 2 do."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        x, mask = inputs
        return super().call(x, mask, training)


class OneMapTwice(ByAttribute):
    """The query's map makes the keys, too, and the key's is called nowhere."""

    def call(self, x: Any) -> Any:
        self.wk, held = self.wq, self.wk
        answer = super().call(x)
        self.wk = held
        return answer


class Frequencies(keras.layers.Layer):
    """As FNet: positions are mixed by a Fourier transform of two axes, of which there is no export."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = [keras.layers.LayerNormalization() for _ in range(2)]
        self.up, self.down = keras.layers.Dense(HIDDEN, activation="relu"), keras.layers.Dense(D)

    def call(self, x: Any) -> Any:
        mixed, _ = keras.ops.fft2((x, keras.ops.zeros_like(x)))
        x = self.norms[0](x + mixed)
        return self.norms[1](x + self.down(self.up(x)))


class InWindows(keras.layers.Layer):
    """Attention within windows of four positions, of which it takes whole ones."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = [keras.layers.LayerNormalization() for _ in range(2)]
        self.attention = keras.layers.MultiHeadAttention(H, D // H)
        self.up, self.down = keras.layers.Dense(HIDDEN, activation="relu"), keras.layers.Dense(D)

    def call(self, x: Any) -> Any:
        windows = keras.ops.reshape(x, (x.shape[0] * (x.shape[1] // 4), 4, D))
        x = self.norms[0](x + keras.ops.reshape(self.attention(windows, windows), x.shape))
        return self.norms[1](x + self.down(self.up(x)))
