"""The forward pass of impls/jax_pure/stack.py on its own parameters, cut into the steps that may be planted."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array
from planting import check_ways

from encoder_conformance import shows_inside
from encoder_conformance.impls.jax_pure.encoder import EncoderLayer
from encoder_conformance.impls.jax_pure.primitives import Tree
from encoder_conformance.impls.jax_pure.stack import Encoder
from planted_jax.encoder import planted_stages
from planted_jax.steps import VARIANTS


def planted_encoder(
    encoder: Encoder | EncoderLayer,
    ways: Mapping[str, str],
    params: Tree,
    x: Array,
    mask: Array | None,
    bias: Array | None,
) -> dict[str, Array]:
    """Every stage by name, of a stack or of one layer by itself. `ways` names the wrong form of each planted step."""
    if isinstance(encoder, EncoderLayer):
        return planted_stages(encoder, ways, params, x, mask, bias)
    check_ways(ways, VARIANTS)
    sublayer, stages = encoder.layers[0].sublayers[0], dict[str, Array]()
    epsilon = (sublayer.norm_before or sublayer.norm_of_sum).epsilon

    def step(name: str, *operands: Any) -> Any:
        return VARIANTS[name][ways.get(name, "standard")](*operands)

    if "embedding" in params:
        x = step("tokens", params["embedding"]["weight"], x)
        x = step("positions", x) if encoder.embedding.sinusoidal is not None else x
        x = stages["embedded"] = step("after_embedding", x)
    layers = [params["layers"][str(number)] for number in range(len(params["layers"]))]
    for number, layer in enumerate(step("layer_order", layers)):
        if number and encoder.embedding is not None and encoder.embedding.sinusoidal is not None:
            x = step("between_layers", x)
        inside = planted_stages(encoder.layers[number], ways, layers[number] if layer is None else layer, x, mask, bias)
        if layer is not None:
            x = inside["output"]
        else:  # nobody sees what a layer that is not there would show
            inside = {name: jnp.full_like(stage, jnp.nan) for name, stage in inside.items()}
        if shows_inside(len(layers)):
            stages |= {f"layer_{number}.{name}": stage for name, stage in inside.items() if name != "output"}
        stages[f"layer_{number}"] = x
    if "final_norm" in params:
        x = stages["final_norm"] = step("stack_norm", params["final_norm"], x, epsilon)
    else:
        x = step("stack_end", x, epsilon)
    return {**stages, "output": x}
