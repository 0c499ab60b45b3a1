"""A stack of encoder layers: token embedding and sinusoidal positions before it, a norm after it, each if asked for."""

import math
from typing import Any

from keras import KerasTensor as Tensor
from keras import layers as keras_layers
from keras import ops

from encoder_conformance import shows_inside
from encoder_conformance.impls.keras_tf.encoder import NORMS, Config, EncoderLayer, Shape, Tap, check, dropped, untapped


class Encoder(keras_layers.Layer):
    """A stack of layers of one `config`. With a `vocabulary` the input is token ids [B, S]."""

    def __init__(
        self,
        config: Config,
        layers: int,
        *,
        final_norm: bool = False,
        vocabulary: int | None = None,
        positions: str = "none",
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # else x would be cast before a layer saw its dtype
        check("positions", positions, ("none", "sinusoidal"))
        policy = self.dtype_policy
        self.positions = positions
        self.embedding = None
        if vocabulary is not None:
            self.embedding = keras_layers.Embedding(vocabulary, config.d_model, name="embedding", dtype=policy)
        self.dropout = keras_layers.Dropout(config.dropout.embedded, name="dropout", dtype=policy)
        self.stacked = [EncoderLayer(config, name=f"layer_{number}", dtype=policy) for number in range(layers)]
        norm = NORMS[config.norm]
        self.norm = norm(epsilon=config.epsilon, name="norm", dtype=policy) if final_norm else None

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
        if self.dropout.rate:
            self.dropout.seed_generator.state.assign([streams * seed + len(self.stacked), 1])

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        bias: Tensor | None = None,
        valid: Tensor | None = None,
        tap: Tap = untapped,
        training: bool = False,
    ) -> Tensor:
        """The output, of EncoderLayer's arguments. `tap` is shown what goes from layer to layer, and of few layers
        what is inside."""
        if self.embedding is not None:
            x = self.embedding(x)
            if self.positions == "sinusoidal":
                x = x + sinusoidal(x)
            x = dropped(self.dropout, tap("embedded", x), training)
        for number, layer in enumerate(self.stacked):
            inside = self.inside(number, tap)
            x = tap(f"layer_{number}", layer(x, attention_mask, bias, valid, tap=inside, training=training))
        if self.norm is not None:
            x = tap("final_norm", self.norm(x))
        return tap("output", x)

    def inside(self, number: int, tap: Tap) -> Tap:
        """The tap of a layer of the stack: its stages are `layer_0.norm1` and so on."""
        if tap is untapped:
            return untapped
        if not shows_inside(len(self.stacked)):
            return pass_on
        return lambda name, x: x if name == "output" else tap(f"layer_{number}.{name}", x)


def without_padding(ids: Tensor, padding_id: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mask [B, 1 or H, 1 or S, S] and `valid` [B, S] of token ids [B, S]: those of padding are masked."""
    valid = ops.not_equal(ids, padding_id)
    return (valid[:, None, None] if mask is None else ops.logical_and(mask, valid[:, None, None])), valid


def pass_on(name: str, stage: Tensor) -> Tensor:
    return stage


def sinusoidal(x: Tensor) -> Tensor:
    """[S, D] in the dtype of x: sin(s / 10000^(2i / D)) at feature 2i, the cosine at 2i + 1."""
    _, S, D = ops.shape(x)
    rates = ops.exp(ops.arange(0, D, 2, dtype=x.dtype) * (-math.log(10000.0) / D))
    angles = ops.expand_dims(ops.arange(S, dtype=x.dtype), -1) * rates
    waves = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(waves, (S, -1))[:, :D]
