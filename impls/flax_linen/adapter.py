"""Flax Linen's MultiHeadDotProductAttention, LayerNorm and Dense, in a block as Flax's example `wmt` builds one."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import ScopeParamShapeError

from encoder_conformance import Array, Masks, RunRequest, Tensors, serve
from encoder_conformance.impls.bases.jax_layers.adapter import Block, JaxLayers, Key, Tree, activation
from encoder_conformance.impls.bases.jax_layers.flax import arguments, parameter_map

NORMS = {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}
SHOWN = {"norm1": "norm1", "norm2": "norm2", "ffn_hidden": "hidden", "ffn_output": "output"}


class EncoderBlock(nn.Module):
    layer: Any
    dtype: str
    own: bool

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array | None, train: bool) -> jax.Array:
        norm, attention, feed_forward = self.layer["norm"], self.layer["attention"], self.layer["feed_forward"]
        rates, told = self.layer["dropout"], arguments(self.layer, self.dtype, own=self.own)
        Dense = partial(nn.Dense, use_bias=feed_forward["bias"], **told.linear)
        dropped = partial(nn.Dropout, deterministic=not train)
        rate, biased = rates["attention_weights"], attention["qkv_bias"]
        attend_to = nn.MultiHeadDotProductAttention(
            attention["num_heads"], use_bias=biased, dropout_rate=rate, name="attention", **told.attention
        )

        def attend(x: jax.Array) -> jax.Array:
            weighed = attend_to(x, mask=mask, deterministic=not train, sow_weights=True)
            return dropped(rates["attention_output"])(weighed)

        def feed(x: jax.Array) -> jax.Array:
            hidden = Dense(feed_forward["d_ff"], name="hidden")(x)
            active = activation(feed_forward["activation"], exact=not self.own)(hidden)
            output = Dense(self.layer["d_model"], name="output")(dropped(rates["ffn_activation"])(active))
            return dropped(rates["ffn_output"])(output)

        norm1, norm2 = (NORMS[norm["kind"]](name=name, **told.norm) for name in ("norm1", "norm2"))
        if norm["placement"] == "pre":
            x = x + attend(norm1(x))
            return x + feed(norm2(x))
        x = norm1(x + attend(x))
        return norm2(x + feed(x))


class FlaxLinen(JaxLayers):
    packages = ("flax",)
    parameters = parameter_map()

    def made(self, layer: Mapping[str, Any], dtype: str) -> Block:
        block = EncoderBlock(layer, dtype, self.choices["defaults"] == "own")
        shown = partial(block.apply, train=False, capture_intermediates=True, mutable=["intermediates"])

        def fresh(key: jax.Array) -> Tree:
            return block.init(key, jnp.zeros((1, 1, layer["d_model"]), dtype), None, False)["params"]

        def apply(params: Tree, x: jax.Array, mask: jax.Array | None, key: Key) -> jax.Array:
            rngs = {} if key is None else {"dropout": key}
            return block.apply({"params": params}, x, mask, key is not None, rngs=rngs)

        return Block(fresh, apply, lambda params, x, mask: shown({"params": params}, x, mask))

    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        output, seen = self.intermediates(self.params, x, self.mask(masks))
        kept = jax.tree.map(np.asarray, seen["intermediates"])
        stages = {name: kept[module]["__call__"][0] for name, module in SHOWN.items()}
        for name in ("query", "key", "value"):
            heads = kept["attention"][name]["__call__"][0]  # [B, S, H, d]
            stages |= {name: heads.reshape(x.shape), f"{name}_heads": heads.swapaxes(1, 2)}
        stages["attention_weights"] = kept["attention"]["attention_weights"][0]
        return {**stages, "attention_output": kept["attention"]["__call__"][0], "output": np.asarray(output)}

    def refusal(self, operation: str, error: Exception) -> str | None:
        if isinstance(error, ScopeParamShapeError | AssertionError):  # "must be divisible by number of heads"
            return "configuration" if operation == "build" else "shape"
        return super().refusal(operation, error)


if __name__ == "__main__":
    serve(FlaxLinen())
