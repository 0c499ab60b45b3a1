"""Models and layers of Keras that are made of what their arguments' names say, and called with what they need."""

from typing import Any

import bare_keras as bare
import keras
import tensorflow as tf
from keras import layers


class TagsItsWords(keras.Model):
    """From ids to as many numbers as there are tags for each."""

    def __init__(self, num_tags: int, vocab_size: int) -> None:
        super().__init__()
        self.words, self.block = layers.Embedding(vocab_size, 16), bare.Block(16)
        self.tags = layers.Dense(num_tags, activation="softmax")

    def call(self, ids: Any) -> Any:
        return self.tags(self.block(self.words(ids)))


class BegunAsItIsTold(layers.Layer):
    def __init__(self, d_model: int, num_heads: int, dff: int, initializer: Any) -> None:
        super().__init__()
        begun: dict[str, Any] = {"kernel_initializer": initializer}
        self.attention = layers.MultiHeadAttention(num_heads, d_model // num_heads, **begun)
        self.up, self.down = layers.Dense(dff, "relu", **begun), layers.Dense(d_model, **begun)
        self.norm1, self.norm2 = layers.LayerNormalization(), layers.LayerNormalization()

    def call(self, x: Any) -> Any:
        x = self.norm1(x + self.attention(x, x))
        return self.norm2(x + self.down(self.up(x)))


class _OfAList(layers.Layer):
    """Attention of a list: Keras gives it a list of masks, each None, in the place of one."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (layers.Dense(d) for _ in range(4))

    def call(self, inputs: Any, mask: Any = None) -> Any:
        q, k, v = (self.cut(part(each)) for part, each in zip((self.q, self.k, self.v), inputs, strict=True))
        scores = tf.matmul(q, k, transpose_b=True) / q.shape[-1] ** 0.5
        if mask is not None:
            scores += mask * -1e9
        made = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), (0, 2, 1, 3))
        return self.o(tf.reshape(made, tf.shape(inputs[0])))

    def cut(self, x: Any) -> Any:
        return tf.transpose(tf.reshape(x, (tf.shape(x)[0], -1, self.heads, x.shape[-1] // self.heads)), (0, 2, 1, 3))


class HandsAListOn(layers.Layer):
    def __init__(self, d_model: int, num_heads: int, dff: int) -> None:
        super().__init__()
        self.attention = _OfAList(d_model, num_heads)
        self.up, self.down = layers.Dense(dff, "relu"), layers.Dense(d_model)
        self.norm1, self.norm2 = layers.LayerNormalization(), layers.LayerNormalization()

    def call(self, x: Any, mask: Any = None) -> Any:
        x = self.norm1(x + self.attention([x, x, x], mask=mask))
        return self.norm2(x + self.down(self.up(x)))


class SkipsNoNetwork(layers.Layer):
    def __init__(self, d_model: int, num_heads: int, dff: int) -> None:
        super().__init__()
        self.attention = layers.MultiHeadAttention(num_heads, d_model // num_heads)
        self.up, self.down = layers.Dense(dff, "relu"), layers.Dense(d_model)
        self.norm1, self.norm2 = layers.LayerNormalization(), layers.LayerNormalization()
        self.drop = layers.Dropout(0.1)

    def call(self, x: Any) -> Any:
        x = self.norm1(x + self.attention(x, x))
        made = self.down(self.up(x))
        return self.norm2(self.drop(made))  # without a skip


class AddsNumbersOfDistances(HandsAListOn):
    """A table begins with the keys behind a query; those beyond five positions share a row."""

    def __init__(self, d_model: int, num_heads: int, dff: int) -> None:
        super().__init__(d_model, num_heads, dff)
        self.table = self.add_weight(shape=(11, num_heads), initializer="random_normal")

    def call(self, x: Any) -> Any:  # type: ignore[override]
        own, at = self.attention, tf.range(tf.shape(x)[1])
        q, k, v = (own.cut(part(x)) for part in (own.q, own.k, own.v))
        apart = tf.clip_by_value(at[:, None] - at[None], -5, 5) + 5
        scores = tf.matmul(q, k, transpose_b=True) / q.shape[-1] ** 0.5
        scores += tf.transpose(tf.gather(self.table, apart), (2, 0, 1))[None]
        made = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), (0, 2, 1, 3))
        x = self.norm1(x + own.o(tf.reshape(made, tf.shape(x))))
        return self.norm2(x + self.down(self.up(x)))


class LosesTheMaskOfKeras(BegunAsItIsTold):
    """Its attention is of what has no mask of Keras any more: an array by itself."""

    def __init__(self, d_model: int, num_heads: int, dff: int) -> None:
        super().__init__(d_model, num_heads, dff, "glorot_uniform")

    def call(self, x: Any) -> Any:
        return super().call(tf.identity(x))


class _Scored(layers.Layer):
    """Attention as it is written out, whose scores are multiplied by what `scaled` says."""

    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (layers.Dense(d, use_bias=False) for _ in range(3))
        self.o = layers.Dense(d)

    def cut(self, x: Any) -> Any:
        return tf.transpose(tf.reshape(x, (tf.shape(x)[0], -1, self.heads, x.shape[-1] // self.heads)), (0, 2, 1, 3))

    def scaled(self, scores: Any, size: Any) -> Any:
        return scores / tf.math.sqrt(size)

    def call(self, x: Any) -> Any:
        q, k, v = (self.cut(each(x)) for each in (self.q, self.k, self.v))
        size = tf.cast(tf.shape(k)[-1], tf.float32)
        scores = self.scaled(tf.matmul(q, k, transpose_b=True), size)
        return self.merged(tf.matmul(tf.nn.softmax(scores), v), tf.shape(x))

    def merged(self, made: Any, shape: Any) -> Any:
        made = tf.transpose(made, (0, 2, 1, 3))
        return self.o(tf.reshape(made, shape))


class _ScaledTwice(_Scored):
    def scaled(self, scores: Any, size: Any) -> Any:
        return scores / size  # and no root


class _MergedAsItLies(_Scored):
    def merged(self, made: Any, shape: Any) -> Any:
        rows = tf.reshape(made, shape)  # without a transpose
        return self.o(rows)


class DividedByItsSize(layers.Layer):
    attends: type[_Scored] = _ScaledTwice

    def __init__(self, d_model: int, num_heads: int, dff: int) -> None:
        super().__init__()
        self.attention = self.attends(d_model, num_heads)
        self.up, self.down = layers.Dense(dff, "relu"), layers.Dense(d_model)
        self.norm1, self.norm2 = layers.LayerNormalization(), layers.LayerNormalization()

    def call(self, x: Any) -> Any:
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.down(self.up(x)))


class PutTogetherAsItLies(DividedByItsSize):
    attends = _MergedAsItLies


class NormsAgainInAGraph(DividedByItsSize):
    attends = _Scored

    @tf.function
    def call(self, x: Any) -> Any:
        x = self.norm1(x + self.attention(x))
        return self.norm1(x + self.down(self.up(x)))  # by the first norm


class KeyOfNoPosition(HandsAListOn):
    """A key and a value beside those of the positions, [1, 1, d_model] each."""

    def build(self, shape: Any) -> None:
        own = [
            self.add_weight(shape=(1, 1, shape[-1]), name=name, initializer="normal") for name in ("bias_k", "bias_v")
        ]
        self.bias_k, self.bias_v = own

    def call(self, x: Any) -> Any:  # type: ignore[override]
        own = self.attention
        q = own.cut(own.q(x))
        k, v = (
            own.cut(tf.concat([part(x), tf.tile(last, [tf.shape(x)[0], 1, 1])], 1))
            for part, last in ((own.k, self.bias_k), (own.v, self.bias_v))
        )
        weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / q.shape[-1] ** 0.5)
        made = tf.transpose(tf.matmul(weights, v), (0, 2, 1, 3))
        x = self.norm1(x + own.o(tf.reshape(made, tf.shape(x))))
        return self.norm2(x + self.down(self.up(x)))


class LosesByDistance(HandsAListOn):
    """Of each head's scores a slope times the distance is taken, as ALiBi has it."""

    def call(self, x: Any) -> Any:  # type: ignore[override]
        own, at = self.attention, tf.range(tf.shape(x)[1])
        q, k, v = (own.cut(part(x)) for part in (own.q, own.k, own.v))
        scores = tf.matmul(q, k, transpose_b=True) / q.shape[-1] ** 0.5
        heads = q.shape[1]
        slopes = tf.constant([[[2.0 ** (-8.0 * (head + 1) / heads)]] for head in range(heads)], scores.dtype)
        scores -= slopes * tf.cast(tf.abs(at[:, None] - at[None]), scores.dtype)
        made = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), (0, 2, 1, 3))
        x = self.norm1(x + own.o(tf.reshape(made, tf.shape(x))))
        return self.norm2(x + self.down(self.up(x)))


class NeedsTheSecondOfATuple(BegunAsItIsTold):
    """Its mask, true = attend, is the second of a tuple, [batch, sequence, sequence], and has to be there."""

    def __init__(self, d_model: int, num_heads: int, dff: int) -> None:
        super().__init__(d_model, num_heads, dff, "glorot_uniform")

    def call(self, inputs: Any) -> Any:
        x, mask = inputs
        attended = self.attention(x, x, attention_mask=tf.tile(tf.expand_dims(mask, 1), [1, 1, 1, 1])[:, 0])
        x = self.norm1(x + attended)
        return self.norm2(x + self.down(self.up(x)))


class TakesKeysForValues(layers.Layer):
    """One part is called twice, and another never."""

    def __init__(self, d_model: int, num_heads: int, dff: int) -> None:
        super().__init__()
        self.heads, self.size = num_heads, d_model // num_heads
        self.q, self.k, self.v, self.o = (layers.Dense(d_model) for _ in range(4))
        self.up, self.down = layers.Dense(dff, "relu"), layers.Dense(d_model)
        self.norm1, self.norm2 = layers.LayerNormalization(), layers.LayerNormalization()

    def cut(self, x: Any) -> Any:
        return tf.transpose(tf.reshape(x, (tf.shape(x)[0], -1, self.heads, self.size)), (0, 2, 1, 3))

    def made(self, x: Any) -> tuple[Any, Any, Any]:
        q = self.q(x)
        k = self.k(x)
        v = self.k(x)  # for the values
        return q, k, v

    def call(self, x: Any) -> Any:
        q, k, v = map(self.cut, self.made(x))
        weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / self.size**0.5)
        x = self.norm1(x + self.o(tf.reshape(tf.transpose(tf.matmul(weights, v), (0, 2, 1, 3)), tf.shape(x))))
        return self.norm2(x + self.down(self.up(x)))


class TakesKeysForQueries(TakesKeysForValues):
    def made(self, x: Any) -> tuple[Any, Any, Any]:
        q = self.k(x)  # for the queries
        k = self.k(x)
        return q, k, self.v(x)


class NeedsItsMask(layers.Layer):
    """A table of embeddings gives it its mask: without one a number is never set."""

    def __init__(self, embed_dim: int, dense_dim: int, num_heads: int) -> None:
        super().__init__()
        self.attention = layers.MultiHeadAttention(num_heads, embed_dim // num_heads)
        self.up, self.down = layers.Dense(dense_dim, "relu"), layers.Dense(embed_dim)
        self.norm1, self.norm2 = layers.LayerNormalization(), layers.LayerNormalization()
        self.supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        if mask is not None:
            padding = tf.cast(mask[:, tf.newaxis, tf.newaxis, :], "int32")
        x = self.norm1(inputs + self.attention(inputs, inputs, attention_mask=padding))
        return self.norm2(x + self.down(self.up(x)))


class NeedsItsMaskInAFunction(NeedsItsMask):
    """The same, in a function that TensorFlow rewrites; the line that fails does not name the mask."""

    @tf.function
    def call(self, inputs: Any, mask: Any = None) -> Any:
        kept = tf.expand_dims(
            tf.cast(mask, "float32"),
            axis=-1,
        )
        seen = tf.cast(tf.matmul(kept, kept, transpose_b=True), "bool")
        x = self.norm1(inputs + self.attention(inputs, inputs, attention_mask=seen))
        return self.norm2(x + self.down(self.up(x)))


class NamesNothingInAFunction(NeedsItsMask):
    """A line of a function that TensorFlow rewrites names what is not there."""

    @tf.function
    def call(self, inputs: Any) -> Any:
        x = self.norm1(inputs + self.attend_to(inputs))  # which it has not
        return self.norm2(x + self.down(self.up(x)))
