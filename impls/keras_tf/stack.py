"""A stack of encoder layers: token embedding and positions before it, a norm after it, each if it is passed in."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from keras import KerasTensor as Tensor
from keras import layers as keras_layers
from keras import ops

from encoder_conformance.impls.bases.tap import Tap, inside, untapped
from encoder_conformance.impls.keras_tf.attention import Shape, dropped
from encoder_conformance.impls.keras_tf.encoder import EncoderLayer


class Encoder(keras_layers.Layer):
    """Layers one after the other (E-14). With an `embedding` the input is token ids [B, S] (E-15), to which `positions`
    are added (E-16), and `dropout` drops of the sum."""

    def __init__(
        self,
        layers: Iterable[EncoderLayer],
        *,
        norm: keras_layers.Layer | None = None,
        embedding: keras_layers.Embedding | None = None,
        positions: Callable[[Tensor, Tensor | None], Tensor] | None = None,
        dropout: keras_layers.Dropout | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # else x would be cast before a layer saw its dtype
        self.positions, self.embedding, self.dropout = positions, embedding, dropout
        self.stacked, self.norm = list(layers), norm

    def build(self, shape: Shape) -> None:
        """`shape` is that of x, or of token ids [B, S]."""
        of_x = shape if self.embedding is None else (*shape, self.embedding.output_dim)
        if self.embedding is not None:
            self.embedding.build(shape)
        for part in (*self.stacked, self.norm):
            if part is not None:
                part.build(of_x)

    def reseed(self, seed: int) -> None:
        """Draw the next pass's dropout from `seed`: each layer from streams of its own."""
        streams = len(self.stacked) + 1
        for number, layer in enumerate(self.stacked):
            layer.reseed(streams * seed + number)
        if self.dropout is not None and self.dropout.rate:
            self.dropout.seed_generator.state.assign([streams * seed + len(self.stacked), 1])

    def call(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        valid: Tensor | None = None,
        tap: Tap[Tensor] = untapped,
        training: bool = False,
    ) -> Tensor:
        """The output, of EncoderLayer's arguments. `tap` is shown what goes from layer to layer, and of few layers
        what is inside. In place of token ids, x may be they and where they lie, [B or 1, S], if not at 0 … S − 1."""
        x, positions = x if isinstance(x, tuple) else (x, None)
        if self.embedding is not None:
            x = self.embedding(x)
            if self.positions is not None:
                x = x + self.positions(x, positions)
            x = tap("embedded", x)
        if self.dropout is not None:
            x = dropped(self.dropout, x, training)
        for number, layer in enumerate(self.stacked):
            within = inside(tap, number, len(self.stacked))
            given = x if positions is None else (x, positions)
            x = tap(f"layer_{number}", layer(given, attention_mask, bias, valid, tap=within, training=training))
        if self.norm is not None:
            x = tap("final_norm", self.norm(x))
        return tap("output", x)


def without_padding(ids: Tensor, padding_id: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mask [B, 1 or H, 1 or S, S] and `valid` [B, S] of token ids [B, S]: those of padding are masked."""
    valid = ops.not_equal(ids, padding_id)
    return (valid[:, None, None] if mask is None else ops.logical_and(mask, valid[:, None, None])), valid


def sinusoidal(x: Tensor, positions: Tensor | None = None) -> Tensor:
    """[S, D] in the dtype of x: sin(s / 10000^(2i / D)) at feature 2i, the cosine at 2i + 1; s counts from 0. [B or 1,
    S, D], where s is given as `positions` [B or 1, S]."""
    _, S, D = ops.shape(x)
    rates = ops.exp(ops.arange(0, D, 2, dtype=x.dtype) * (-math.log(10000.0) / D))
    places = ops.arange(S, dtype=x.dtype) if positions is None else ops.cast(positions, x.dtype)
    angles = ops.expand_dims(places, -1) * rates
    waves = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(waves, (*ops.shape(places)[:-1], S, -1))[..., :D]
