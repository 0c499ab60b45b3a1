"""Right layers of Keras that are called otherwise than with x [batch, sequence, d_model] and a mask."""

from typing import Any

import bare_keras as bare
import keras


class Plain(bare.Block):
    pass


class OfPositions(bare.Block):
    """Built when it is first called, which needs positions, too."""

    def call(self, x: Any, positions: Any, mask: Any = None, training: bool | None = None) -> Any:
        if tuple(positions.shape) != tuple(x.shape)[:2]:
            raise ValueError(f"positions {positions.shape}")
        return super().call(x + 0 * keras.ops.cast(positions, x.dtype)[..., None], mask, training)


class OfAKind(bare.Block):
    """Built when it is first called; nothing that is tried says what `kind` is."""

    def call(self, x: Any, kind: str, training: bool | None = None) -> Any:
        if kind != "encoder":
            raise ValueError(f"no kind {type(kind).__name__}")
        return super().call(x, None, training)


def called_with_a_fault() -> keras.Layer:
    """Keras puts words of its own before what the layer raises, and behind it."""
    layer = OfAKind()
    layer(keras.ops.zeros((2, 5, 16)), kind="decoder")
    return layer


class HasToBeTold(bare.Block):
    """Whether it trains has no default, as in many layers of TensorFlow."""

    def call(self, x: Any, training: bool, mask: Any = None) -> Any:
        return super().call(x, mask, training)


class OfAMask(bare.Block):
    """A mask that it needs, true at positions that are there."""

    def call(self, x: Any, attention_mask: Any, training: bool | None = None) -> Any:
        return super().call(x, attention_mask, training)


class OfAMapping(bare.Block):
    def call(self, batch: Any, training: bool | None = None) -> Any:
        return {"hidden": super().call(batch["hidden"], batch.get("padding_mask"), training)}


class ByKeywordAlone(bare.Block):
    def call(self, *, hidden_states: Any, mask: Any = None, training: bool | None = None) -> Any:
        return super().call(hidden_states, mask, training)


class SequenceLast(bare.Block):
    def call(self, x: Any, mask: Any = None, training: bool | None = None) -> Any:
        return keras.ops.swapaxes(super().call(keras.ops.swapaxes(x, 1, 2), mask, training), 1, 2)


class MapOfRows(bare.Block):
    """[batch, height, width, d_model]"""

    def call(self, x: Any, training: bool | None = None) -> Any:
        if len(x.shape) != 4:
            raise ValueError(f"no map: {x.shape}")
        batch, height, width, d = x.shape
        rows = super().call(keras.ops.reshape(x, (batch, height * width, d)), None, training)
        return keras.ops.reshape(rows, (batch, height, width, d))


class OfWideHeads(keras.layers.Layer):
    """As a well-known page has it: heads as wide as the layer, and a constructor that takes no name."""

    def __init__(self, embed_dim: int = 32, num_heads: int = 2) -> None:
        super().__init__()
        self.attention = keras.layers.MultiHeadAttention(num_heads, key_dim=embed_dim)
        self.network = keras.Sequential([keras.layers.Dense(24, activation="relu"), keras.layers.Dense(embed_dim)])
        self.norm1, self.norm2 = (keras.layers.LayerNormalization(epsilon=1e-6) for _ in range(2))

    def call(self, inputs: Any) -> Any:
        x = self.norm1(inputs + self.attention(inputs, inputs))
        return self.norm2(x + self.network(x))


class FailsWithoutItsMask(bare.Block):
    """Its mask has a default, None, with which it fails; nothing is built before a call."""

    def call(self, x: Any, attention_mask: Any = None, training: bool | None = None) -> Any:
        batch, sequence = keras.ops.shape(x)[:2]
        return super().call(x, keras.ops.reshape(attention_mask, (batch, sequence)), training)


class OfASquare(bare.Block):
    """Takes as many positions as a square has."""

    def call(self, x: Any, training: bool | None = None) -> Any:
        batch, sequence, features = x.shape
        side = int(sequence**0.5)
        rows = keras.ops.reshape(x, (batch, side, side, features))
        return super().call(keras.ops.reshape(rows, (batch, sequence, features)), None, training)


class BuiltByTwoShapes(bare.Block):
    """What makes its parts is given the shapes of x and of its mask."""

    def build(self, x_shape: Any, attention_mask_shape: Any) -> None:
        if len(attention_mask_shape) != len(x_shape) - 1:
            raise ValueError(f"a mask {attention_mask_shape} for x {x_shape}")

    def call(self, x: Any, attention_mask: Any, training: bool | None = None) -> Any:
        return super().call(x, attention_mask, training)


class OfABatchSize(bare.Block):
    def call(self, x: Any, batch_size: int, training: bool | None = None) -> Any:
        return super().call(keras.ops.reshape(x, (batch_size, -1, x.shape[-1])), None, training)
