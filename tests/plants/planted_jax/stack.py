"""The forward pass of impls/jax_pure/stack.py on its own parameters, cut into the steps that may be planted."""

from collections.abc import Mapping
from typing import Any

from jax import Array
from planting import check_ways

from encoder_conformance.impls.jax_pure.encoder import Config, Tree
from planted_jax.encoder import planted_stages
from planted_jax.steps import VARIANTS


def planted_encoder(
    config: Config, ways: Mapping[str, str], params: Tree, x: Array, mask: Array | None, bias: Array | None
) -> dict[str, Array]:
    """Every stage by name, of a stack or of one layer by itself. `ways` names the wrong form of each planted step."""
    if "layers" not in params:
        return planted_stages(config, ways, params, x, mask, bias)
    check_ways(ways, VARIANTS)
    stages: dict[str, Array] = {}

    def step(name: str, *operands: Any) -> Any:
        return VARIANTS[name][ways.get(name, "standard")](*operands)

    if "embedding" in params:
        x = step("tokens", params["embedding"]["weight"], x)
        x = stages["embedded"] = step("positions", x) if config.positions == "sinusoidal" else x
    layers = [params["layers"][str(number)] for number in range(len(params["layers"]))]
    for number, layer in enumerate(step("layer_order", layers)):
        if number and config.positions == "sinusoidal":
            x = step("between_layers", x)
        if layer is not None:
            x = planted_stages(config, ways, layer, x, mask, bias)["output"]
        stages[f"layer_{number}"] = x
    if "final_norm" in params:
        x = stages["final_norm"] = step("stack_norm", params["final_norm"], x, config.epsilon)
    else:
        x = step("stack_end", x, config.epsilon)
    return {**stages, "output": x}
