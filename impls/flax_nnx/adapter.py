"""Flax NNX's MultiHeadAttention, LayerNorm and Linear, in a block as Flax's documentation builds a Transformer's."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from encoder_conformance import Array, Masks, RunRequest, Tensors, serve
from encoder_conformance.impls.bases.jax_layers.adapter import Block, JaxLayers, Key, Tree, activation
from encoder_conformance.impls.bases.jax_layers.flax import arguments, parameter_map

NORMS = {"layer_norm": nnx.LayerNorm, "rms_norm": nnx.RMSNorm}


class EncoderBlock(nnx.Module):
    def __init__(self, layer: Mapping[str, Any], dtype: str, own: bool, rngs: nnx.Rngs) -> None:
        norm, attention, feed_forward = layer["norm"], layer["attention"], layer["feed_forward"]
        D, F, told = layer["d_model"], feed_forward["d_ff"], arguments(layer, dtype, own=own)
        biased = feed_forward["bias"]
        self.pre = norm["placement"] == "pre"
        self.norm1 = NORMS[norm["kind"]](D, rngs=rngs, **told.norm)
        self.norm2 = NORMS[norm["kind"]](D, rngs=rngs, **told.norm)
        self.attention = nnx.MultiHeadAttention(
            attention["num_heads"], D, use_bias=attention["qkv_bias"], decode=False, keep_rngs=False, rngs=rngs,
            dropout_rate=layer["dropout"]["attention_weights"], **told.attention,
        )  # fmt: skip
        self.hidden = nnx.Linear(D, F, use_bias=biased, rngs=rngs, **told.linear)
        self.output = nnx.Linear(F, D, use_bias=biased, rngs=rngs, **told.linear)
        self.activation = activation(feed_forward["activation"], exact=not own)
        self.dropout = nnx.Dict({place: nnx.Dropout(rate) for place, rate in layer["dropout"].items()})

    def __call__(self, x: jax.Array, mask: jax.Array | None, key: Key, weights: bool = False) -> jax.Array:
        rngs, still = None if key is None else nnx.Rngs(key), key is None

        def dropped(place: str, x: jax.Array) -> jax.Array:
            return self.dropout[place](x, deterministic=still, rngs=rngs)

        def attend(x: jax.Array) -> jax.Array:
            weighed = self.attention(x, mask=mask, deterministic=still, rngs=rngs, sow_weights=weights)
            return dropped("attention_output", weighed)

        def feed(x: jax.Array) -> jax.Array:
            hidden = dropped("ffn_activation", self.activation(self.hidden(x)))
            return dropped("ffn_output", self.output(hidden))

        if self.pre:
            x = x + attend(self.norm1(x))
            return x + feed(self.norm2(x))
        x = self.norm1(x + attend(x))
        return self.norm2(x + feed(x))


class FlaxNNX(JaxLayers):
    packages = ("flax",)
    parameters = parameter_map()

    def made(self, layer: Mapping[str, Any], dtype: str) -> Block:
        own = self.choices["defaults"] == "own"
        graph, abstract = nnx.split(nnx.eval_shape(lambda: EncoderBlock(layer, dtype, own, nnx.Rngs(0))))

        def fresh(key: jax.Array) -> Tree:
            return nnx.to_pure_dict(nnx.state(EncoderBlock(layer, dtype, own, nnx.Rngs(key)), nnx.Param))

        def model(params: Tree) -> EncoderBlock:
            state = jax.tree.map(lambda leaf: leaf, abstract)
            nnx.replace_by_pure_dict(state, params)
            return nnx.merge(graph, state)

        def weighed(params: Tree, x: jax.Array, mask: jax.Array | None) -> tuple[jax.Array, jax.Array]:
            block = model(params)
            output = block(x, mask, None, weights=True)
            return block.attention.attention_weights.get_value()[0], output

        return Block(fresh, lambda params, x, mask, key: model(params)(x, mask, key), weighed)

    def weights(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        found = self.intermediates(self.params, x, self.mask(masks))
        return dict(zip(("attention_weights", "output"), map(np.asarray, found), strict=True))


if __name__ == "__main__":
    serve(FlaxNNX())
