"""Layers of Keras with one bug each, as people write them; `# here` ends the line that is due."""

from typing import Any

import keras
from keras import ops

D, H, HIDDEN = 16, 2, 24


class NoSkip(keras.layers.Layer):
    """What attention gives is normed, and added to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = keras.layers.MultiHeadAttention(num_heads=H, key_dim=D // H)
        self.network = keras.Sequential([keras.layers.Dense(HIDDEN, activation="gelu"), keras.layers.Dense(D)])
        self.norm1, self.norm2 = (keras.layers.LayerNormalization(epsilon=1e-6) for _ in range(2))
        self.drop1, self.drop2 = keras.layers.Dropout(0.1), keras.layers.Dropout(0.1)

    def call(self, x: Any) -> Any:
        attended = self.attention(x, x)  # here: NoSkip
        attended = self.drop1(attended)
        x = self.norm1(attended)
        hidden = self.network(x)
        return self.norm2(x + self.drop2(hidden))


class OwnAttention(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (keras.layers.Dense(D) for _ in range(4))

    def cut(self, x: Any) -> Any:
        return ops.transpose(ops.reshape(x, (ops.shape(x)[0], -1, H, D // H)), (0, 2, 1, 3))

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))
        scores = scores / (D // H) ** 0.5
        weights = ops.softmax(scores, axis=-2)  # here: OverQueries
        return ops.matmul(weights, v)

    def call(self, x: Any) -> Any:
        context = self.attend(self.cut(self.query(x)), self.cut(self.key(x)), self.cut(self.value(x)))
        context = ops.transpose(context, (0, 2, 1, 3))
        return self.out(ops.reshape(context, (ops.shape(x)[0], -1, D)))


class OverQueries(NoSkip):
    """The softmax is over the queries."""

    def __init__(self) -> None:
        super().__init__()
        self.own = OwnAttention()

    def call(self, x: Any) -> Any:
        x = x + self.own(self.norm1(x))
        return x + self.network(self.norm2(x))


class DropsAlways(NoSkip):
    """What attention gives is dropped whatever it is told."""

    def call(self, x: Any, training: bool = False) -> Any:
        attended = self.drop1(self.attention(x, x), training=True)  # here: DropsAlways
        x = self.norm1(x + attended)
        return self.norm2(x + self.drop2(self.network(x), training=training))


class OneNormTwice(NoSkip):
    """Its second norm is called nowhere, and so it has no weights."""

    def call(self, x: Any) -> Any:
        x = self.norm1(x + self.attention(x, x))
        return self.norm1(x + self.network(x))  # here: OneNormTwice


class Exchanged(OverQueries):
    """Query and key have each other's maps."""

    class Attention(OwnAttention):
        def attend(self, q: Any, k: Any, v: Any) -> Any:
            scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / (D // H) ** 0.5
            return ops.matmul(ops.softmax(scores, axis=-1), v)

        def call(self, x: Any) -> Any:
            queries = self.cut(self.key(x))  # here: Exchanged
            keys = self.cut(self.query(x))
            context = ops.transpose(self.attend(queries, keys, self.cut(self.value(x))), (0, 2, 1, 3))
            return self.out(ops.reshape(context, (ops.shape(x)[0], -1, D)))

    def __init__(self) -> None:
        super().__init__()
        self.own = self.Attention()


class _ByDeviation(keras.layers.Layer):
    """It divides by the root of a deviation."""

    def build(self, shape: Any) -> None:
        self.gain = self.add_weight(shape=(shape[-1],), initializer="ones", name="a_2")
        self.shift = self.add_weight(shape=(shape[-1],), initializer="zeros", name="b_2")

    def call(self, x: Any) -> Any:
        deviation = ops.std(x, axis=-1, keepdims=True)
        normed = (x - ops.mean(x, axis=-1, keepdims=True)) / ops.sqrt(deviation + 1e-5)
        return self.gain * normed + self.shift  # here: NormedByDeviation


class NormedByDeviation(Exchanged):
    """A post-norm layer, whose norms divide by another number."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = _ByDeviation(), _ByDeviation()
        self.W_q, self.W_k, self.W_v, self.W_o = (keras.layers.Dense(D) for _ in range(4))

    def call(self, x: Any) -> Any:
        heads = [self.own.cut(each(x)) for each in (self.W_q, self.W_k, self.W_v)]
        context = ops.transpose(self.own.attend(*heads), (0, 2, 1, 3))
        x = self.first(x + self.W_o(ops.reshape(context, (ops.shape(x)[0], -1, D))))
        return self.second(x + self.network(x))
