"""The forward pass of impls/pytorch/stack.py on its own modules, cut into the steps that may be planted."""

from collections.abc import Mapping
from typing import Any

from planting import check_ways
from torch import Tensor

from encoder_conformance.impls.pytorch.encoder import Tap, untapped
from encoder_conformance.impls.pytorch.stack import Encoder
from planted_pytorch.encoder import planted_layer
from planted_pytorch.steps import VARIANTS


def planted_encoder(
    encoder: Any, ways: Mapping[str, str], x: Tensor, mask: Tensor | None, bias: Tensor | None, tap: Tap
) -> Tensor:
    """A stack, or one layer by itself. `ways` names the wrong form of each step that is planted."""
    if not isinstance(encoder, Encoder):
        return planted_layer(encoder, ways, x, mask, bias, tap)
    check_ways(ways, VARIANTS)

    def step(name: str, *operands: Any) -> Any:
        return VARIANTS[name][ways.get(name, "standard")](*operands)

    if encoder.embedding is not None:
        x = step("tokens", encoder.embedding, x)
        x = tap("embedded", step("positions", x) if encoder.positions == "sinusoidal" else x)
    for number, layer in enumerate(step("layer_order", encoder.layers)):
        if number and encoder.positions == "sinusoidal":
            x = step("between_layers", x)
        if layer is not None:
            x = planted_layer(layer, ways, x, mask, bias, untapped)
        x = tap(f"layer_{number}", x)
    if encoder.norm is not None:
        return tap("output", tap("final_norm", step("stack_norm", encoder.norm, x)))
    return tap("output", step("stack_end", encoder.layers[0].norm2, x))
