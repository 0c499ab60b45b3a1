"""The forward pass of impls/pytorch/stack.py on its own modules, cut into the steps that may be planted."""

from collections.abc import Mapping
from typing import Any

import torch
from planting import check_ways
from torch import Tensor

from encoder_conformance.impls.bases.tap import Tap, inside
from encoder_conformance.impls.pytorch.stack import Encoder
from planted_pytorch.encoder import planted_layer
from planted_pytorch.steps import VARIANTS


def planted_encoder(
    encoder: Any, ways: Mapping[str, str], x: Tensor, mask: Tensor | None, bias: Tensor | None, tap: Tap[Tensor]
) -> Tensor:
    """A stack, or one layer by itself. `ways` names the wrong form of each step that is planted."""
    if not isinstance(encoder, Encoder):
        return planted_layer(encoder, ways, x, mask, bias, tap)
    check_ways(ways, VARIANTS)

    def step(name: str, *operands: Any) -> Any:
        return VARIANTS[name][ways.get(name, "standard")](*operands)

    if encoder.embedding is not None:
        x = step("tokens", encoder.embedding.tokens, x)
        x = step("positions", x) if encoder.embedding.sinusoidal is not None else x
        x = tap("embedded", step("after_embedding", x))
    for number, layer in enumerate(step("layer_order", encoder.layers)):
        within = inside(tap, number, len(encoder.layers))
        if number and encoder.embedding is not None and encoder.embedding.sinusoidal is not None:
            x = step("between_layers", x)
        if layer is not None:
            x = planted_layer(layer, ways, x, mask, bias, within)
        else:  # nobody sees what a layer that is not there would show
            show_nothing(encoder.layers[number], ways, x, mask, bias, within)
        x = tap(f"layer_{number}", x)
    if encoder.norm is not None:
        return tap("output", tap("final_norm", step("stack_norm", encoder.norm, x)))
    return tap("output", step("stack_end", encoder.layers[0].norm2, x))


def show_nothing(
    layer: Any, ways: Mapping[str, str], x: Tensor, mask: Tensor | None, bias: Tensor | None, tap: Tap[Tensor]
) -> None:
    """NaN for every stage of a layer."""

    def seen(name: str, stage: Tensor) -> Tensor:
        tap(name, torch.full_like(stage, torch.nan))
        return stage

    planted_layer(layer, ways, x, mask, bias, seen)
