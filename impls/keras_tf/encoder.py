"""A Transformer encoder layer, batch first: sub-layers one after the other, or side by side, made of Keras layers that
are passed in."""

from dataclasses import dataclass
from typing import Any

from keras import KerasTensor as Tensor
from keras import layers, ops

from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.keras_tf.attention import MultiHeadAttention, Shape, dropped
from encoder_conformance.impls.keras_tf.feed_forward import FeedForward


@dataclass(frozen=True)
class SubLayer:
    """A residual sum around a body, with its norm before the body (E-3), after it (E-25) or of the sum (E-4): what is
    None is not there. What the body gives is multiplied by a gain (E-31) and by a weight (E-29). `name`: of what it
    gives. No Keras layer: its parts belong to the encoder layer, which has them under their names."""

    name: str
    body: MultiHeadAttention | FeedForward
    dropout: layers.Dropout
    norm_before: layers.Layer | None = None
    norm_after: layers.Layer | None = None
    norm_of_sum: layers.Layer | None = None
    gain: layers.Layer | None = None
    weight: float = 1.0

    @property
    def parts(self) -> list[layers.Layer]:
        every = self.norm_before, self.norm_after, self.norm_of_sum, self.body, self.dropout, self.gain
        return [part for part in every if part is not None]

    def __call__(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        number: int,
        masks: dict[str, Tensor | None],
        tap: Tap[Tensor],
        training: bool,
    ) -> Tensor:
        """[B, S, D]. `number` counts the sub-layers of a layer from 1, as stages do. x may be x and where it lies."""
        added = self.branch(x, number, masks, tap, training)
        x = tap(f"residual{number}", (x[0] if isinstance(x, tuple) else x) + added)
        return x if self.norm_of_sum is None else tap(f"norm{number}", self.norm_of_sum(x))

    def branch(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        number: int,
        masks: dict[str, Tensor | None],
        tap: Tap[Tensor],
        training: bool,
    ) -> Tensor:
        """What is added, [B, S, D]."""
        x, *positions = x if isinstance(x, tuple) else (x,)
        h = x if self.norm_before is None else tap(f"norm{number}", self.norm_before(x))
        given = (h, *positions) if positions and isinstance(self.body, MultiHeadAttention) else h
        h = self.body(given, **masks, tap=tap, training=training)
        if self.norm_after is not None:
            h = tap(f"{self.name}_norm", self.norm_after(h))
        if self.gain is not None:
            h = tap(f"{self.name}_scaled", self.gain(h))
        return dropped(self.dropout, h if self.weight == 1.0 else self.weight * h, training)


class EncoderLayer(layers.Layer):
    """The sub-layers in the order in which they are given. Their parts are attributes of the layer by their own names:
    `norm1`, `attention`, `dropout1`, … `parallel`: both read x (E-41), by `shared_norm` where it is given.

    Keras begins with Xavier uniform kernels, biases and shifts of 0, gains of 1.
    """

    attention: MultiHeadAttention

    def __init__(
        self, *sublayers: SubLayer, parallel: bool = False, shared_norm: layers.Layer | None = None, **kwargs: Any
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # else x would be cast before anyone saw its dtype
        self.sublayers, self.parallel, self.shared_norm = sublayers, parallel, shared_norm
        self.parts = [part for sublayer in sublayers for part in sublayer.parts]
        for part in self.parts:
            setattr(self, part.name, part)

    def build(self, shape: Shape) -> None:
        for part in [*self.parts, *([self.shared_norm] if self.shared_norm is not None else [])]:
            part.build((*shape[:-1], self.attention.d_model))

    def reseed(self, seed: int) -> None:
        """Draw the next pass's dropout from `seed`: each placement from a stream of its own."""
        placements = [each for sublayer in self.sublayers for each in (sublayer.body.dropout, sublayer.dropout)]
        for at, placement in enumerate(placements):
            if placement.rate:
                placement.seed_generator.state.assign([len(placements) * seed + at, 0])

    def call(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        valid: Tensor | None = None,
        tap: Tap[Tensor] = untapped,
        training: bool = False,
    ) -> Tensor:
        """x [B, S, D], or x and where it lies, [B or 1, S], if not at 0 … S − 1; attention_mask None or bool, broadcast
        to [B, H, S, S], true where a key may be attended to; bias, None or in the dtype of x and broadcast as the mask
        is, is added to the scores; valid, None or bool [B, S], is true where x holds data and not padding."""
        x, positions = x if isinstance(x, tuple) else (x, None)
        self.attention.check_fit(x, attention_mask)
        if valid is not None and attention_mask is not None:
            x = ops.where(ops.expand_dims(self.attention.softmax.needed(valid, attention_mask), -1), x, 0.0)
        masks = {"attention_mask": attention_mask, "bias": bias}

        def located(h: Tensor) -> Tensor | tuple[Tensor, Tensor]:
            return h if positions is None else (h, positions)

        if self.parallel:
            given = x if self.shared_norm is None else tap("norm1", self.shared_norm(x))
            for number, sublayer in enumerate(self.sublayers, 1):
                x = x + sublayer.branch(located(given), number, masks, tap, training)
            return tap("output", tap("residual2", x))
        for number, sublayer in enumerate(self.sublayers, 1):
            x = sublayer(located(x), number, masks, tap, training)
        return tap("output", x)
