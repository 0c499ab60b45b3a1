"""A stack of encoder layers: an embedding before it, a norm after it, each if it is passed in."""

from collections.abc import Iterable
from typing import Any

from keras import KerasTensor as Tensor
from keras import layers as keras_layers
from keras import ops

from encoder_conformance.impls.bases.tap import Tap, inside, untapped
from encoder_conformance.impls.keras_tf.attention import Shape
from encoder_conformance.impls.keras_tf.embedding import Embedding
from encoder_conformance.impls.keras_tf.encoder import EncoderLayer


class Encoder(keras_layers.Layer):
    """Layers one after the other (E-14), after an `embedding` and before a `norm` where there are any."""

    def __init__(
        self,
        layers: Iterable[EncoderLayer],
        *,
        norm: keras_layers.Layer | None = None,
        embedding: Embedding | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # else x would be cast before a layer saw its dtype
        self.embedding, self.stacked, self.norm = embedding, list(layers), norm

    def build(self, shape: Shape) -> None:
        """`shape` is that of x, or of token ids [B, S]."""
        of_x = (*shape[:2], self.stacked[0].attention.d_model)
        for part in (self.embedding, *self.stacked, self.norm):
            if part is not None:
                part.build(of_x)

    def reseed(self, seed: int) -> None:
        """Draw the next pass's dropout from `seed`: each layer from streams of its own."""
        streams = len(self.stacked) + 1
        for number, layer in enumerate(self.stacked):
            layer.reseed(streams * seed + number)
        if self.embedding is not None and self.embedding.dropout.rate:
            self.embedding.dropout.seed_generator.state.assign([streams * seed + len(self.stacked), 1])

    def call(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        valid: Tensor | None = None,
        tap: Tap[Tensor] = untapped,
        training: bool = False,
        types: Tensor | None = None,
    ) -> Tensor:
        """The output, of EncoderLayer's arguments. `tap` is shown what goes from layer to layer, and of few layers
        what is inside. In place of token ids, x may be they and where they lie, [B or 1, S], if not at 0 … S − 1.
        `types`: those of the tokens, [B, S]; None where all are of type 0."""
        given, positions = x, x[1] if isinstance(x, tuple) else None
        if self.embedding is not None:
            x = self.embedding(given, valid=valid, types=types, tap=tap, training=training)
        elif positions is not None:
            x = x[0]
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
