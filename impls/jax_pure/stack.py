"""A stack of encoder layers, with its embedding, positions and final norm, or one layer by itself.

The tree of one layer is `encoder.py`'s. That of a stack:

    embedding       weight [V, D], if tokens come in and not x
    layers          "0", "1", …: the tree of each layer
    final_norm      gain [D], shift [D], if there is one
"""

import jax
import jax.numpy as jnp
from jax import Array

from encoder_conformance.impls.jax_pure.encoder import (
    NO_MASKS,
    NORMS,
    Config,
    Masks,
    Tap,
    Tree,
    attention,
    encoder_layer,
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
    memory: Array | None = None,
) -> Array:
    """x [B, S, D], or token ids [B, S]; of attention alone, whose only parameters are `attention`'s, with `memory`
    [B, T, D]. The tap is shown what goes from layer to layer of a stack, and nothing inside them. With `key`, in
    training: what dropout is drawn from."""
    if memory is not None:
        return tap("output", attention(config, params["attention"], x, masks, tap, undropped, memory))
    if "layers" not in params:
        return encoder_layer(config, params, x, masks, tap, key)
    keys = [None if key is None else jax.random.fold_in(key, number) for number in range(len(params["layers"]))]
    inside = untapped if tap is untapped else pass_on
    if "embedding" in params:
        x = params["embedding"]["weight"][x]
        if config.positions == "sinusoidal":
            x = x + sinusoidal(x)
        x = tap("embedded", x)
    for number, own in enumerate(keys):
        layer = params["layers"][str(number)]
        x = tap(f"layer_{number}", encoder_layer(config, layer, x, masks, inside, own))
    if "final_norm" in params:
        x = tap("final_norm", NORMS[config.norm](params["final_norm"], x, epsilon=config.epsilon))
    return tap("output", x)


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

    encoder(config, params, x, masks, tap, key, memory)
    return stages


def encoder_stage(name: str, config: Config, params: Tree, x: Array, masks: Masks, stages: Tree) -> Array:
    """One stage, from `stages`: the tap puts these in the place of what would lead to them, which then falls away."""
    found: dict[str, Array] = {}

    def tap(stage_name: str, stage: Array) -> Array:
        found[stage_name] = stage
        return stages.get(stage_name, stage)

    encoder(config, params, x, masks, tap)
    return found[name]
