"""A stack of encoder layers, with its embedding, positions and final norm, or one layer by itself.

The tree of one layer is `encoder.py`'s. That of a stack:

    embedding       weight [V, D], if tokens come in and not x
    layers          "0", "1", …: the tree of each layer
    final_norm      gain [D], shift [D], if there is one
"""

import jax
import jax.numpy as jnp
from jax import Array

from encoder_conformance import shows_inside
from encoder_conformance.impls.jax_pure.encoder import (
    NO_MASKS,
    NORMS,
    Config,
    Masks,
    Tap,
    Tree,
    attend,
    dropped,
    encoder_layer,
    project,
    undropped,
    untapped,
)


def encoder(
    config: Config,
    params: Tree,
    x: Array,
    masks: Masks = NO_MASKS,
    tap: Tap = untapped,
    key: Array | None = None,
) -> Array:
    """x [B, S, D], or token ids [B, S]. The tap is shown what goes from layer to layer of a stack, and of few layers
    what is inside. With `key`, in training: what dropout is drawn from."""
    if "layers" not in params:
        return encoder_layer(config, params, x, masks, tap, key)
    keys = [None if key is None else jax.random.fold_in(key, number) for number in range(len(params["layers"]))]
    if masks.padding_id is not None:
        valid = (x != masks.padding_id)[:, None, None]  # [B, 1, 1, S]
        masks = masks._replace(allowed=valid if masks.allowed is None else masks.allowed & valid)
    if "embedding" in params:
        x = params["embedding"]["weight"][x]
        if config.positions == "sinusoidal":
            x = x + sinusoidal(x)
        x = tap("embedded", x)
        if key is not None and config.dropout.embedded:
            bits = jax.random.bits(jax.random.fold_in(key, len(keys)), x.shape, jnp.uint32)
            x = dropped(config.dropout, {"embedded": bits}, "embedded", x)
    for number, own in enumerate(keys):
        layer = params["layers"][str(number)]
        x = tap(f"layer_{number}", encoder_layer(config, layer, x, masks, inside(number, len(keys), tap), own))
    if "final_norm" in params:
        x = tap("final_norm", NORMS[config.norm](params["final_norm"], x, epsilon=config.epsilon))
    return tap("output", x)


def cross_attention(
    config: Config, params: Tree, x: Array, memory: Array, masks: Masks = NO_MASKS, tap: Tap = untapped
) -> Array:
    """Attention alone, whose only parameters are `attention`'s: of x [B, S, D] over `memory` [B, T, D]."""
    heads = project(config, params["attention"], x, memory, tap)
    return tap("output", attend(config, params["attention"], heads, masks, tap, undropped))


def inside(number: int, layers: int, tap: Tap) -> Tap:
    """What a layer of a stack is tapped by: its stages are `layer_0.norm1` and so on."""
    if tap is untapped:
        return untapped
    if not shows_inside(layers):
        return pass_on
    return lambda name, x: x if name == "output" else tap(f"layer_{number}.{name}", x)


def pass_on(name: str, stage: Array) -> Array:
    return stage


def sinusoidal(x: Array) -> Array:
    """[S, D] in the dtype of x: sin(s / 10000^(2i / D)) at feature 2i, the cosine at 2i + 1."""
    _, S, D = x.shape
    rates = 10000.0 ** (-jnp.arange(0, D, 2, dtype=x.dtype) / D)
    angles = jax.lax.broadcasted_iota(x.dtype, (S, rates.size), 0) * rates  # jax2onnx cannot index an arange of S
    return jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1).reshape(S, -1)[:, :D]


def encoder_stages(
    config: Config,
    params: Tree,
    x: Array,
    masks: Masks = NO_MASKS,
    key: Array | None = None,
    memory: Array | None = None,
) -> dict[str, Array]:
    """Every stage by name: the tap is at work only while this is traced, so that it is as pure as the rest."""
    stages: dict[str, Array] = {}

    def tap(name: str, stage: Array) -> Array:
        stages[name] = stage
        return stage

    if memory is None:
        encoder(config, params, x, masks, tap, key)
    else:
        cross_attention(config, params, x, memory, masks, tap)
    return stages


def encoder_stage(name: str, config: Config, params: Tree, x: Array, masks: Masks, stages: Tree) -> Array:
    """One stage, from `stages`: the tap puts these in the place of what would lead to them, which then falls away."""
    found: dict[str, Array] = {}

    def tap(stage_name: str, stage: Array) -> Array:
        found[stage_name] = stage
        return stages.get(stage_name, stage)

    encoder(config, params, x, masks, tap)
    return found[name]
