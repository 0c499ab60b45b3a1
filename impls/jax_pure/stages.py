"""The stages of an encoder, by functions as pure as the encoder is: the tap is at work only while they are traced."""

from collections.abc import Callable

from jax import Array

from encoder_conformance.impls.jax_pure.attention import NO_MASKS, Masks
from encoder_conformance.impls.jax_pure.primitives import Tree

Whole = Callable[..., Array]
"""An EncoderLayer, Encoder or CrossAttention."""


def encoder_stages(
    whole: Whole,
    params: Tree,
    x: Array,
    masks: Masks = NO_MASKS,
    key: Array | None = None,
    memory: Array | None = None,
) -> dict[str, Array]:
    """Every stage by name."""
    stages: dict[str, Array] = {}

    def tap(name: str, stage: Array) -> Array:
        stages[name] = stage
        return stage

    if memory is None:
        whole(params, x, masks, tap, key)
    else:
        whole(params, x, memory, masks, tap)
    return stages


def encoder_stage(name: str, whole: Whole, params: Tree, x: Array, masks: Masks, stages: Tree) -> Array:
    """One stage, from `stages`: the tap puts these in the place of what would lead to them, which then falls away."""
    found: dict[str, Array] = {}

    def tap(stage_name: str, stage: Array) -> Array:
        found[stage_name] = stage
        return stages.get(stage_name, stage)

    whole(params, x, masks, tap)
    return found[name]
