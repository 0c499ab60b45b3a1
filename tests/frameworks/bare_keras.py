"""Layers and models of Keras that nobody wrote an adapter for. Targets of `conform check`."""

from typing import Any

import keras
from keras import layers

D, H, F = 16, 2, 24


class Block(layers.Layer):
    """A pre-norm layer by Keras' own attention; its weights are made when it is first called."""

    def __init__(self, d: int = D, epsilon: float = 1e-6, **named: Any) -> None:
        super().__init__(**named)
        self.d = d
        self.norm1, self.norm2 = layers.LayerNormalization(epsilon=epsilon), layers.LayerNormalization(epsilon=epsilon)
        self.attention = layers.MultiHeadAttention(H, d // H)
        self.up, self.down = layers.Dense(F, activation=self.activation), layers.Dense(d)
        self.dropout = layers.Dropout(0.1)

    def activation(self, x: Any) -> Any:
        return keras.ops.gelu(x, approximate=False)

    def first(self, x: Any, y: Any) -> Any:
        return x + y

    def call(self, x: Any, mask: Any = None, training: bool | None = None) -> Any:
        y = self.norm1(x)
        if mask is not None:
            mask = mask[:, None, :]
        x = self.first(x, self.dropout(self.attention(y, y, attention_mask=mask), training=training))
        return x + self.down(self.up(self.norm2(x)))


class MadeInBuild(layers.Layer):
    """A post-norm layer whose parts come into being in its build."""

    def __init__(self, size: int = F, **named: Any) -> None:
        super().__init__(**named)
        self.size = size

    def build(self, input_shape: Any) -> None:
        d = input_shape[-1]
        self.attention = layers.MultiHeadAttention(H, d // H)
        self.norm1, self.norm2 = layers.LayerNormalization(), layers.LayerNormalization()
        self.up, self.down = layers.Dense(self.size, activation="relu"), layers.Dense(d)

    def call(self, x: Any) -> Any:
        x = self.norm1(x + self.attention(x, x))
        return self.norm2(x + self.down(self.up(x)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "size": self.size}


class OfIntermediateDim(layers.Layer):
    """The same, of which no size is the width: that is x's."""

    def __init__(self, intermediate_dim: int, **named: Any) -> None:
        super().__init__(**named)
        self.intermediate_dim = intermediate_dim

    def build(self, input_shape: Any) -> None:
        d = input_shape[-1]
        self.attention = layers.MultiHeadAttention(H, d // H)
        self.norm1, self.norm2 = layers.LayerNormalization(), layers.LayerNormalization()
        self.up, self.down = layers.Dense(self.intermediate_dim, activation="relu"), layers.Dense(d)

    def call(self, x: Any) -> Any:
        x = self.norm1(x + self.attention(x, x))
        return self.norm2(x + self.down(self.up(x)))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "intermediate_dim": self.intermediate_dim}


class Tanh(Block):
    def activation(self, x: Any) -> Any:
        return keras.ops.gelu(x)


class DropsByDefault(Block):
    def call(self, x: Any, mask: Any = None, training: bool = True) -> Any:
        return super().call(x, mask, training)


class NoResidual(Block):
    def first(self, x: Any, y: Any) -> Any:
        return y


class Epsilon(Block):
    def __init__(self) -> None:
        super().__init__(epsilon=1e-3)


def functional_that_always_drops() -> Any:
    x = keras.Input((None, D), name="x")
    attended = layers.Dropout(0.1)(layers.MultiHeadAttention(H, D // H)(x, x), training=True)
    r = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([x, attended]))
    fed = layers.Dense(D)(layers.Dense(F, activation="relu")(r))
    return keras.Model(x, layers.LayerNormalization(epsilon=1e-6)(layers.Add()([r, fed])))


def functional(activation: str = "relu", epsilon: float = 1e-6, last: float = 1.0) -> Any:
    """A post-norm layer as a model of x and a mask."""
    x, mask = keras.Input((None, D), name="x"), keras.Input((None,), dtype="bool", name="mask")
    attended = layers.MultiHeadAttention(H, D // H)(x, x, attention_mask=keras.ops.expand_dims(mask, 1))
    r = layers.LayerNormalization(epsilon=epsilon)(layers.Add()([x, attended]))
    hidden = layers.Dense(F, activation=activation)(r)
    fed = layers.Dense(D)(hidden)
    y = layers.LayerNormalization(epsilon=epsilon)(layers.Add()([r * last, fed]))
    return keras.Model([x, mask], y)


def functional_silu() -> Any:
    return functional("silu")


def functional_epsilon() -> Any:
    return functional(epsilon=1e-3)


def functional_twice() -> Any:
    return functional(last=2.0)


def hub(**choices: Any) -> Any:
    """KerasHub's own layer, at its defaults but for the sizes."""
    from keras_hub.layers import TransformerEncoder

    return TransformerEncoder(F, H, **choices)


def hub_epsilon() -> Any:
    return hub(layer_norm_epsilon=1e-3)


def hub_silu() -> Any:
    return hub(activation="silu")


def hub_linear() -> Any:
    """The activation was forgotten."""
    return hub(activation=None)


class Model(keras.Model):
    """A subclassed model of two layers of one kind."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(name="first"), Block(name="second")

    def call(self, x: Any) -> Any:
        return self.second(self.first(x))


def pointwise() -> Any:
    """A network of convolutions of kernel 1, as Keras' examples of time series have it."""
    x = keras.Input((None, D), name="x")
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    r = x + layers.MultiHeadAttention(H, D // H)(y, y)
    hidden = layers.Conv1D(F, 1, activation="relu")(layers.LayerNormalization(epsilon=1e-6)(r))
    return keras.Model(x, r + layers.Conv1D(D, 1)(hidden))


class _Hidden(Block):
    """Its name would begin a scope of TensorFlow's graphs, which begins with no underscore."""


class ByAttribute(keras.layers.Layer):
    """Its maps have names as attributes alone: Keras calls them dense and dense_1. `exchanged`: wq makes the keys."""

    def __init__(self, exchanged: bool = False) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo, self.down = (keras.layers.Dense(D) for _ in range(5))
        self.up, self.exchanged = keras.layers.Dense(24, activation="relu"), exchanged
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
