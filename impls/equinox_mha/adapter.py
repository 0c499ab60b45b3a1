"""Equinox's MultiheadAttention, LayerNorm and Linear, in a block as its example BERT builds one."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from encoder_conformance import ParameterMap, Take, serve
from encoder_conformance.impls.bases.jax_layers.adapter import Block, JaxLayers, Key, Tree, activation

OF_LINEAR = {f"attention.{part}_proj": f"attention.{part}" for part in ("query", "key", "value", "output")}
OF_LINEAR |= {part: f"feed_forward.{part}" for part in ("hidden", "output")}
NORMS = {"layer_norm": eqx.nn.LayerNorm, "rms_norm": eqx.nn.RMSNorm}


def parameter_map() -> ParameterMap:
    takes = {f"{own}.weight": Take(f"{name}.weight", transpose=True) for own, name in OF_LINEAR.items()}
    takes |= {f"{own}.bias": Take(f"{name}.bias") for own, name in OF_LINEAR.items()}
    takes |= {f"{name}.weight": Take(f"{name}.gain") for name in ("norm1", "norm2")}
    return ParameterMap(takes | {f"{name}.bias": Take(f"{name}.shift") for name in ("norm1", "norm2")})


class EncoderBlock(eqx.Module):
    norm1: Any
    attention: eqx.nn.MultiheadAttention
    norm2: Any
    hidden: eqx.nn.Linear
    output: eqx.nn.Linear
    dropout: dict[str, eqx.nn.Dropout]
    activation: Any = eqx.field(static=True)
    pre: bool = eqx.field(static=True)

    def __init__(self, layer: Mapping[str, Any], dtype: Any, own: bool, key: jax.Array) -> None:
        norm, attention, feed_forward = layer["norm"], layer["attention"], layer["feed_forward"]
        D, F, keys = layer["d_model"], feed_forward["d_ff"], jax.random.split(key, 3)
        kind, epsilon = NORMS[norm["kind"]], norm["epsilon"]
        told = {"use_bias": norm["kind"] == "layer_norm", "dtype": dtype}
        self.norm1, self.norm2 = kind(D, eps=epsilon, **told), kind(D, eps=epsilon, **told)
        biases = {f"use_{name}_bias": attention["qkv_bias"] for name in ("query", "key", "value")}
        self.attention = eqx.nn.MultiheadAttention(
            attention["num_heads"], D, **biases, use_output_bias=attention["output_bias"],
            dropout_p=layer["dropout"]["attention_weights"], dtype=dtype, key=keys[0],
        )  # fmt: skip
        self.hidden = eqx.nn.Linear(D, F, use_bias=feed_forward["bias"], dtype=dtype, key=keys[1])
        self.output = eqx.nn.Linear(F, D, use_bias=feed_forward["bias"], dtype=dtype, key=keys[2])
        self.dropout = {place: eqx.nn.Dropout(rate) for place, rate in layer["dropout"].items()}
        self.activation = activation(feed_forward["activation"], exact=not own)
        self.pre = norm["placement"] == "pre"

    def __call__(self, x: jax.Array, mask: jax.Array | None, key: Key) -> jax.Array:
        """The output [S, D] of one item: x [S, D], mask [H, S, S]."""
        drawn = [None] * len(self.dropout) if key is None else jax.random.split(key, len(self.dropout))
        keys = dict(zip(self.dropout, drawn, strict=True))

        def dropped(place: str, x: jax.Array) -> jax.Array:
            return self.dropout[place](x, key=keys[place], inference=key is None)

        def attend(x: jax.Array) -> jax.Array:
            weighed = self.attention(x, x, x, mask, key=keys["attention_weights"], inference=key is None)
            return dropped("attention_output", weighed)

        def feed(x: jax.Array) -> jax.Array:
            hidden = dropped("ffn_activation", self.activation(jax.vmap(self.hidden)(x)))
            return dropped("ffn_output", jax.vmap(self.output)(hidden))

        norm1, norm2 = jax.vmap(self.norm1), jax.vmap(self.norm2)
        if self.pre:
            x = x + attend(norm1(x))
            return x + feed(norm2(x))
        x = norm1(x + attend(x))
        return norm2(x + feed(x))


class Equinox(JaxLayers):
    packages = ("equinox",)
    parameters = parameter_map()

    def made(self, layer: Mapping[str, Any], dtype: str) -> Block:
        def block(key: jax.Array) -> EncoderBlock:
            return EncoderBlock(layer, jnp.dtype(dtype), self.choices["defaults"] == "own", key)

        made = eqx.filter_eval_shape(block, jax.random.key(0))
        static = eqx.filter(made, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct), inverse=True)

        def apply(params: Tree, x: jax.Array, mask: jax.Array | None, key: Key) -> jax.Array:
            keys, one = None if key is None else jax.random.split(key, len(x)), mask is None or len(mask) == 1
            if mask is not None:  # [H, S, S] of each item, which the layer takes only whole
                every = 1, layer["attention"]["num_heads"], x.shape[1], 1
                mask = jnp.broadcast_to(mask, jnp.broadcast_shapes(mask.shape, every))
                mask = mask[0] if one else mask
            return jax.vmap(eqx.combine(params, static), in_axes=(0, None if one else 0, 0))(x, mask, keys)

        return Block(lambda key: eqx.filter(block(key), eqx.is_array), apply)


if __name__ == "__main__":
    serve(Equinox())
