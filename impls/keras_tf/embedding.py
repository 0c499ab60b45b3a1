"""What stands before the layers of a stack: rows of tables, positions and a norm, each if it is passed in."""

import math
from collections.abc import Callable
from typing import Any

from keras import KerasTensor as Tensor
from keras import layers, ops

from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.keras_tf.attention import Shape, dropped


class LearnedPositions(layers.Layer):
    """A row of a table for each position, that of position 0 at `first` (E-37). `skips_padding`: padding has none."""

    def __init__(self, rows: int, first: int, *, skips_padding: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rows, self.first, self.skips_padding = rows, first, skips_padding

    def build(self, shape: Shape) -> None:
        self.table = self.add_weight(shape=(self.rows, shape[-1]), initializer="uniform", name="table")

    def call(self, x: Tensor, positions: Tensor | None = None, valid: Tensor | None = None) -> Tensor:
        """[B or 1, S, D] for x [B, S, …]."""
        if positions is not None:
            at = ops.cast(positions, "int32")
        elif self.skips_padding and valid is not None:
            at = ops.cumsum(ops.cast(valid, "int32"), axis=1) - 1
        else:
            at = ops.arange(ops.shape(x)[1], dtype="int32")[None]
        # What is padding has any row: where it counts for nothing, -1 would be before the table.
        return ops.take(self.table, ops.maximum(at + self.first, 0), axis=0)


class Embedding(layers.Layer):
    """The sum of what is passed in, of token ids [B, S] (E-15), or of x where there are no `tokens` (E-39): their rows,
    multiplied by `scale` (E-35), those of their types (E-36), and positions (E-16, E-37). It is normed (E-38), and
    dropped of."""

    def __init__(
        self,
        dropout: layers.Dropout,
        *,
        tokens: layers.Embedding | None = None,
        scale: float = 1.0,
        types: layers.Embedding | None = None,
        sinusoidal: Callable[[Tensor, Tensor | None], Tensor] | None = None,
        learned: LearnedPositions | None = None,
        norm: layers.Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # else x would be cast before a layer saw its dtype
        self.tokens, self.scale, self.types, self.sinusoidal = tokens, scale, types, sinusoidal
        self.learned, self.norm, self.dropout = learned, norm, dropout

    def build(self, shape: Shape) -> None:
        """`shape`: that of what it gives, [B, S, D]."""
        for table in (self.tokens, self.types):
            if table is not None:
                table.build(shape[:2])
        for part in (self.learned, self.norm):
            if part is not None:
                part.build(shape)

    def call(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        valid: Tensor | None = None,
        types: Tensor | None = None,
        tap: Tap[Tensor] = untapped,
        training: bool = False,
    ) -> Tensor:
        """[B, S, D]. x may be x and where it lies. `types`: None where all tokens are of type 0."""
        x, positions = x if isinstance(x, tuple) else (x, None)
        if self.tokens is not None:
            x = self.tokens(x)
            x = x if self.scale == 1.0 else x * ops.convert_to_tensor(self.scale, dtype=x.dtype)
        if self.types is not None:
            x = x + (self.types.embeddings[0] if types is None else self.types(types))
        if self.sinusoidal is not None:
            x = x + self.sinusoidal(x, positions)
        if self.learned is not None:
            x = x + self.learned(x, positions, valid)
        if self.norm is not None:
            x = self.norm(tap("embedding_sum", x))
        return dropped(self.dropout, tap("embedded", x), training)


def sinusoidal(x: Tensor, positions: Tensor | None = None) -> Tensor:
    """[S, D] in the dtype of x: sin(s / 10000^(2i / D)) at feature 2i, the cosine at 2i + 1; s counts from 0. [B or 1,
    S, D], where s is given as `positions` [B or 1, S]."""
    _, S, D = ops.shape(x)
    rates = ops.exp(ops.arange(0, D, 2, dtype=x.dtype) * (-math.log(10000.0) / D))
    places = ops.arange(S, dtype=x.dtype) if positions is None else ops.cast(positions, x.dtype)
    angles = ops.expand_dims(places, -1) * rates
    waves = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(waves, (*ops.shape(places)[:-1], S, -1))[..., :D]
