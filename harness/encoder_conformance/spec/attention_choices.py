"""What the keys of an attention give its steps (E-22, E-23, E-27, E-30): arguments of forms, by their names.

An adapter has a layer as a dict; `plan` reads it with its keys as attributes.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # adapters import this module, and have numpy and safetensors only
    from encoder_conformance.spec.layer import Layer, PositionBias


def rotation(layer: "Layer", head_dim: int, number: int) -> dict[str, Any]:
    """How queries and keys are turned (E-22): the variant that is right, theta, and how many features; {} without.

    `number`: the layer's in a stack.
    """
    if (rope := layer.attention.rope) is None:
        return {}
    right = "standard" if rope.pairing == "halves" else rope.pairing
    return {"right": right, "theta": theta_of(layer, number), "rotated": rope.rotated or head_dim}


def is_global(layer: "Layer", number: int) -> bool:
    """Whether layer `number` of a stack has no window, though others have one (E-33)."""
    those = layer.stack.global_layers
    return those is not None and number >= those.first and (number - those.first) % those.every == 0


def theta_of(layer: "Layer", number: int) -> float | None:
    """The base of the frequencies of layer `number` of a stack (E-22, E-33); None where nothing is rotated."""
    rope, those = layer.attention.rope, layer.stack.global_layers
    own = those.theta if those is not None and is_global(layer, number) else None
    return own if own is not None or rope is None else rope.theta


def qk_norm(layer: "Layer", over: str) -> dict[str, Any]:
    """The variant that is right of queries' and keys' norm, and its epsilon (E-27); {} where none is over that."""
    chosen = layer.attention.qk_norm
    if chosen is None or chosen.over != over:
        return {}
    return {"norm": "standard" if chosen.kind == "layer_norm" else chosen.kind, "epsilon": layer.norm.epsilon}


def cap_of(layer: "Layer") -> dict[str, Any]:
    """What scores are capped at (E-30); {} where they are not."""
    return {} if layer.attention.softcap is None else {"cap": layer.attention.softcap}


def by_distance(bias: "PositionBias") -> tuple[str, dict[str, Any]]:
    """The variant that is right of a bias of scores by distance (E-23, E-42, E-43), and what it takes."""
    if bias.distances == "linear":
        return "linear", {"slopes": bias.slopes or "geometric"}
    right = "clipped" if bias.distances == "clipped" else "standard"
    return right, {"buckets": bias.buckets, "max_distance": bias.max_distance}
