"""Layers of Keras, each of a kind that a pool of public repositories showed to be judged for what it is not."""

from typing import Any

import bare_keras as bare
import keras
from keras import ops


class _Attention(keras.layers.Layer):
    """Its weights are made for whatever it is given first."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (keras.layers.Dense(64) for _ in range(4))

    def call(self, x: Any, y: Any, hidden: Any) -> Any:
        q, k, v = (self.cut(each) for each in (self.q(x), self.k(y), self.v(y)))
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / 4
        scores = scores if hidden is None else scores + hidden * -1e9
        context = ops.transpose(ops.matmul(ops.softmax(scores, -1), v), (0, 2, 1, 3))
        return self.o(ops.reshape(context, ops.shape(x)))

    def cut(self, x: Any) -> Any:
        return ops.transpose(ops.reshape(x, (ops.shape(x)[0], -1, 4, 16)), (0, 2, 1, 3))


class OfTwoSequences(keras.layers.Layer):
    """A layer of a decoder, of which no name says so."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.other = _Attention(), _Attention()
        self.up, self.down = keras.layers.Dense(96, activation="relu"), keras.layers.Dense(64)
        self.norm1, self.norm2, self.norm3 = (keras.layers.LayerNormalization() for _ in range(3))

    def call(self, x: Any, others: Any, mask: Any, other_mask: Any) -> Any:
        x = self.norm1(x + self.own(x, x, mask))
        x = self.norm2(x + self.other(x, others, other_mask))
        return self.norm3(x + self.down(self.up(x)))


class OfAnEncoding(OfTwoSequences):
    def call(self, x: Any, encoding_outputs: Any, mask: Any = None) -> Any:
        return super().call(x, encoding_outputs, mask, None)


class NeverTrained(bare.Block):
    """What it drops is turned off by a setting, which wins over the argument; its epsilon is no published one."""

    def __init__(self, **given: Any) -> None:
        super().__init__(epsilon=1e-3, **given)
        self.drop = keras.layers.Dropout(0.5)

    def call(self, x: Any, mask: Any = None, training: bool | None = None) -> Any:
        return self.drop(super().call(x, mask, False), training=False)
