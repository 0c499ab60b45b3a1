"""Layers of Keras, each of a kind that a pool of public repositories showed to be judged for what it is not."""

from typing import Any

import bare_keras as bare
import keras
import tensorflow as tf
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


class _HeadsOfAllFeatures(keras.Model):
    """Each head has as many features as x, which no argument says by a name; and nothing makes it again."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.attention = keras.layers.MultiHeadAttention(2, sizes[-1])
        self.norm1, self.norm2 = (keras.layers.LayerNormalization(epsilon=1e-5) for _ in range(2))
        self.up, self.down = keras.layers.Dense(sizes[0], activation="relu"), keras.layers.Dense(sizes[-1])

    def call(self, x: Any) -> Any:
        x = self.norm1(x + self.attention(x, x))
        return self.norm2(x + self.down(self.up(x)))


def heads_of_all_features() -> keras.Model:
    return _HeadsOfAllFeatures((24, 16))


class SaysNoSizes(bare.Block):
    """What it returns is said to be of any batch and length."""

    def call(self, x: Any, mask: Any = None, training: bool | None = None) -> Any:
        return super().call(x, mask, training), mask

    def compute_output_spec(self, x: Any, *_: Any, **__: Any) -> Any:
        return keras.KerasTensor((None, None, x.shape[-1])), None


class _ConfiguredWrong(bare.MadeInBuild):
    """Its configuration has another name for an argument that it needs."""

    def __init__(self, size: int) -> None:
        super().__init__(size)

    def get_config(self) -> dict[str, Any]:
        return {"hidden": self.size}


def configured_wrong() -> keras.layers.Layer:
    return _ConfiguredWrong(24)


class NeedsNumbers(bare.Block):
    """The size of its mask is computed of numbers, which a graph does not have."""

    def call(self, x: Any, mask: Any = None, training: bool | None = None) -> Any:
        batch, length, _ = ops.shape(x)
        seen = ops.cast(ops.tril(ops.ones((1, length, length))), "bool")
        times = ops.concatenate([ops.expand_dims(batch, -1), ops.convert_to_tensor([1, 1])], 0)
        y = self.norm1(x)
        x = x + self.attention(y, y, attention_mask=ops.tile(seen, times))
        return x + self.down(self.up(self.norm2(x)))


class InALoop(bare.Block):
    """A state goes from each position to the next."""

    def call(self, x: Any, mask: Any = None, training: bool | None = None) -> Any:
        length, y = ops.shape(x)[1], self.norm1(x)

        def step(at: Any, state: Any, made: Any) -> tuple[Any, Any, Any]:
            state = state * 0.9 + ops.take(y, at, 1)
            return at + 1, state, ops.slice_update(made, (0, at, 0), ops.expand_dims(state, 1))

        _, _, made = ops.while_loop(lambda at, *_: at < length, step, (0, ops.zeros_like(x[:, 0]), ops.zeros_like(x)))
        return x + self.down(self.up(self.norm2(x + made)))


class ExchangedPrivately(keras.layers.Layer):
    """Its maps are private attributes, of which two do each other's work."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self._wq, self._wk, self._wv, self._out = (keras.layers.Dense(16) for _ in range(4))
        self._norm1, self._norm2 = (keras.layers.LayerNormalization(epsilon=1e-5) for _ in range(2))
        self._up, self._down = keras.layers.Dense(24, activation="relu"), keras.layers.Dense(16)

    def call(self, x: Any) -> Any:
        batch, length = ops.shape(x)[0], ops.shape(x)[1]
        cut = [ops.reshape(each(x), (batch, length, 2, 8)) for each in (self._wk, self._wq, self._wv)]
        q, k, v = (ops.transpose(each, (0, 2, 1, 3)) for each in cut)
        weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / 8**0.5, -1)
        context = ops.reshape(ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3)), (batch, length, 16))
        x = self._norm1(x + self._out(context))
        return self._norm2(x + self._down(self._up(x)))


class _OfMapsAlone(keras.Model):
    """Its width is said by its maps alone; and nothing makes it again."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self._size_of_heads = sizes[-1] // 2
        self.q, self.k, self.v, self.o = (keras.layers.Dense(sizes[-1]) for _ in range(4))
        self.norm1, self.norm2 = (keras.layers.LayerNormalization(epsilon=1e-5) for _ in range(2))
        self.up, self.down = keras.layers.Dense(sizes[0], activation="relu"), keras.layers.Dense(sizes[-1])

    def attend(self, x: Any) -> Any:
        batch, length, size = x.shape[0], x.shape[1], self._size_of_heads
        cut = [ops.reshape(each(x), (batch, length, 2, size)) for each in (self.q, self.k, self.v)]
        q, k, v = (ops.transpose(each, (0, 2, 1, 3)) for each in cut)
        weights = ops.softmax(self.scores(q, k) / size**0.5, -1)
        return self.o(ops.reshape(ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3)), (batch, length, 2 * size)))

    def scores(self, q: Any, k: Any) -> Any:
        return ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))

    def call(self, x: Any) -> Any:
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.down(self.up(x)))


class _RaisesBehindItsMaps(_OfMapsAlone):
    def call(self, x: Any) -> Any:
        x = self.norm1(x + self.attend(x))
        raise ValueError("no rate")


def of_maps_alone() -> keras.Model:
    return _OfMapsAlone((24, 16))


def raises_behind_its_maps() -> keras.Model:
    return _RaisesBehindItsMaps((24, 16))


class _OfAngles(_OfMapsAlone):
    """Its parts are built where it is, which they are once; and it needs cosines and sines of half its heads."""

    def build(self, shape: Any) -> None:
        for each in (self.q, self.k, self.v, self.o):
            each.build(shape)

    def call(self, x: Any, freqs_cos: Any, freqs_sin: Any) -> Any:
        assert tuple(freqs_cos.shape) == tuple(freqs_sin.shape) == (x.shape[1], self._size_of_heads // 2)
        self._turned = ops.concatenate([freqs_cos, freqs_cos], -1), ops.concatenate([freqs_sin, freqs_sin], -1)
        return super().call(x)

    def scores(self, q: Any, k: Any) -> Any:
        return super().scores(*(self._turn(each, *self._turned) for each in (q, k)))

    def _turn(self, heads: Any, cos: Any, sin: Any) -> Any:
        one, other = ops.split(heads, 2, -1)
        return heads * cos + ops.concatenate([-other, one], -1) * sin


def of_angles() -> keras.Model:
    return _OfAngles((24, 16))


class InAListByPlaces(bare.Block):
    """x and a mask of each query and key, which is handed on: of as many positions as features both have one shape."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:  # type: ignore[override]
        mask = inputs[1] if len(inputs) > 1 else None
        y = self.norm1(inputs[0])
        if mask is not None and len(mask.shape) == 2:
            mask = mask[:, None, :]
        x = inputs[0] + self.dropout(self.attention(y, y, attention_mask=mask), training=training)
        return [x + self.down(self.up(self.norm2(x))), mask]


class NamesWhatKerasHadOnce(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (keras.layers.Dense(64) for _ in range(3))

    def call(self, x: Any) -> Any:
        return keras.backend.batch_dot(self.q(x), self.k(x)) + self.v(x)


def of_a_graph(inputs: Any, num_heads: int, ff_dim: int, dropout: float = 0.1) -> Any:
    """A function that makes a graph, as Keras' examples write an encoder."""
    attended = keras.layers.MultiHeadAttention(num_heads, 16, dropout=dropout)(inputs, inputs)
    x = keras.layers.LayerNormalization(epsilon=1e-5)(inputs + keras.layers.Dropout(dropout)(attended))
    hidden = keras.layers.Conv1D(ff_dim, 1, activation="relu")(x)
    hidden = keras.layers.Conv1D(inputs.shape[-1], 1)(keras.layers.Dropout(dropout)(hidden))
    return keras.layers.LayerNormalization(epsilon=1e-5)(x + hidden)


def of_a_graph_of_one_length(inputs: Any) -> Any:
    """Its heads are cut by the number of positions, of which a graph has to know one."""
    q, k, v = (
        ops.transpose(ops.reshape(keras.layers.Dense(64)(inputs), (-1, inputs.shape[1], 4, 16)), (0, 2, 1, 3))
        for _ in range(3)
    )
    weights = ops.softmax(ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / 4, -1)
    context = ops.reshape(ops.transpose(ops.matmul(weights, v), (0, 2, 1, 3)), (-1, inputs.shape[1], 64))
    x = keras.layers.LayerNormalization(epsilon=1e-5)(inputs + keras.layers.Dense(64)(context))
    network = keras.layers.Dense(64)(keras.layers.Dense(96, activation="relu")(x))
    return keras.layers.LayerNormalization(epsilon=1e-5)(x + network)


class _OfTwoEpsilons(_OfMapsAlone):
    def __init__(self, sizes: tuple[int, int]) -> None:
        super().__init__(sizes)
        self.norm2 = keras.layers.LayerNormalization(epsilon=1e-3)


def of_two_epsilons() -> keras.Model:
    return _OfTwoEpsilons((24, 16))


class _MapsEachPosition(_OfMapsAlone):
    """Its feed-forward network maps one position after another, as what was written for recurrent networks does."""

    def __init__(self, sizes: tuple[int, int]) -> None:
        super().__init__(sizes)
        self.up, self.down = keras.layers.TimeDistributed(self.up), keras.layers.TimeDistributed(self.down)


def maps_each_position() -> keras.Model:
    return _MapsEachPosition((24, 16))


class NamesItsPartsByPaths(keras.layers.Layer):
    """As Keras 2 let a layer, whatever it is given."""

    def build(self, shape: Any) -> None:
        self.up = keras.layers.Dense(24, name=f"{self.name}/up")
        self.down = keras.layers.Dense(shape[-1], name=f"{self.name}/down")

    def call(self, x: Any) -> Any:
        return x + self.down(self.up(x))


class _NormOfVariables(keras.layers.Layer):
    """Its gain and shift are variables of TensorFlow, which Keras 2 took for weights."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.shift = tf.Variable(tf.ones([16])), tf.Variable(tf.zeros([16]))

    def call(self, x: Any) -> Any:
        mean, variance = ops.moments(x, -1, keepdims=True)
        return self.gain * (x - mean) / ops.sqrt(variance + 1e-5) + self.shift


class _NormsByVariables(_OfMapsAlone):
    def __init__(self, sizes: tuple[int, int]) -> None:
        super().__init__(sizes)
        self.norm1, self.norm2 = _NormOfVariables(), _NormOfVariables()


def norms_by_variables() -> keras.Model:
    return _NormsByVariables((24, 16))


class HandsAFunctionOn(keras.layers.Layer):
    """As its first argument, which Keras 2 took."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.own = _Calls(), keras.layers.Dense(16)

    def call(self, x: Any) -> Any:
        return x + self.first(x, lambda y: self.own(y))


class _Calls(keras.layers.Layer):
    def call(self, x: Any, function: Any) -> Any:
        return function(x)


class DropsItsWeights(keras.layers.Layer):
    """Keras' attention with dropout of its weights fills masked scores with -1e9, and sets their weights to 0."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = keras.layers.MultiHeadAttention(4, 16, dropout=0.1)
        self.up, self.down = keras.layers.Dense(96, activation="relu"), keras.layers.Dense(64)
        self.norm1, self.norm2 = (keras.layers.LayerNormalization() for _ in range(2))

    def call(self, x: Any, mask: Any = None) -> Any:
        x = self.norm1(x + self.attention(x, x, attention_mask=mask))
        return self.norm2(x + self.down(self.up(x)))


class DropsOneBranchAlone(bare.Block):
    """The part that drops what the network gives is made, and not called; the other is, in training alone."""

    def __init__(self) -> None:
        super().__init__(epsilon=1e-5)
        self.drop, self.drop_of_network = keras.layers.Dropout(0.1), keras.layers.Dropout(0.2)

    def call(self, x: Any, mask: Any = None, training: bool = False) -> Any:
        found = super().call(x, mask, training)
        return self.drop(found, training=True) if training else found


class TwoMadeOfOneQuery(keras.layers.Layer):
    """The key is multiplied by itself, under names that its owner gave."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (keras.layers.Dense(32) for _ in range(4))
        self.up, self.down = keras.layers.Dense(48, activation="relu"), keras.layers.Dense(32)
        self.norm1, self.norm2 = (keras.layers.LayerNormalization(epsilon=1e-5) for _ in range(2))

    def call(self, x: Any) -> Any:
        self.q_proj(x)  # which nobody reads
        k, v = (self.cut(each) for each in (self.k_proj(x), self.v_proj(x)))
        scores = ops.matmul(k, ops.transpose(k, (0, 1, 3, 2))) / 8**0.5
        context = ops.transpose(ops.matmul(ops.softmax(scores, -1), v), (0, 2, 1, 3))
        x = self.norm1(x + self.o_proj(ops.reshape(context, ops.shape(x))))
        return self.norm2(x + self.down(self.up(x)))

    def cut(self, x: Any) -> Any:
        return ops.transpose(ops.reshape(x, (ops.shape(x)[0], -1, 4, 8)), (0, 2, 1, 3))


class OfIds(keras.Model):
    """A model from ids that nobody has called yet, as course notes have it: its mask may come with a call."""

    HANDS_ON = True

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = keras.layers.Embedding(40, 64), keras.layers.Embedding(32, 64)
        self.several = [bare.Block(64) for _ in range(2)]

    def call(self, ids: Any, mask: Any = None) -> Any:
        x = self.words(ids) + self.places(ops.arange(ops.shape(ids)[1]))
        for layer in self.several:
            x = layer(x, mask=mask if self.HANDS_ON else None)
        return x


class OfIdsNotHandedOn(OfIds):
    HANDS_ON = False


class _OfAnotherSize(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return tf.zeros([16] - tf.shape(x)[-1:]) + x


class RaisesInAPart(keras.layers.Layer):
    """What its part raises, Keras puts in bold."""

    def __init__(self) -> None:
        super().__init__()
        self.part = keras.Sequential([keras.layers.Dense(64), _OfAnotherSize()])

    def call(self, x: Any) -> Any:
        return x + self.part(x)


class Parallel(bare.Block):
    """Both sub-layers read x, by a norm each."""

    def call(self, x: Any, mask: Any = None, training: bool | None = None) -> Any:
        y = self.norm1(x)
        mask = None if mask is None else mask[:, None, :]
        attended = self.dropout(self.attention(y, y, attention_mask=mask), training=training)
        return attended + self.down(self.up(self.norm2(x))) + x
