"""The stages of an encoder: names, shapes, and the order in which they are computed (clauses T-1 and T-3).

Sizes: B batch, S sequence, T keys (S without a memory), D d_model, H num_heads, d head_dim, F d_ff.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # adapters import this module, and have numpy and safetensors only
    from encoder_conformance.spec.layer import Layer
    from encoder_conformance.spec.situation import Situation

SHAPES: dict[str, str] = {
    "norm1": "B S D",
    "query": "B S D",
    "key": "B T D",
    "value": "B T D",
    "query_heads": "B H S d",
    "key_heads": "B H T d",
    "value_heads": "B H T d",
    "attention_scores": "B H S T",
    "attention_weights": "B H S T",
    "context": "B H S d",
    "context_merged": "B S D",
    "attention_output": "B S D",
    "residual1": "B S D",
    "norm2": "B S D",
    "ffn_hidden": "B S F",
    "ffn_activation": "B S F",
    "ffn_output": "B S D",
    "residual2": "B S D",
    "embedded": "B S D",
    "layer_k": "B S D",
    "final_norm": "B S D",
    "output": "B S D",
}
"""`kind_of` a stage → its axes. `layer_k` stands for every layer of a stack."""
OF_KEYS = frozenset({"key", "value", "key_heads", "value_heads"})
"""Stages with one row for each key."""
LAST_AXIS_IS_KEYS = frozenset({"attention_scores", "attention_weights"})

_ATTENTION = (
    "query", "key", "value", "query_heads", "key_heads", "value_heads",
    "attention_scores", "attention_weights", "context", "context_merged", "attention_output",
)  # fmt: skip
_FEED_FORWARD = ("ffn_hidden", "ffn_activation", "ffn_output")
_ORDER = {
    "pre": ("norm1", *_ATTENTION, "residual1", "norm2", *_FEED_FORWARD, "residual2", "output"),
    "post": (*_ATTENTION, "residual1", "norm1", *_FEED_FORWARD, "residual2", "norm2", "output"),
}


def stages(layer: "Layer") -> tuple[str, ...]:
    """The stages of a layer or stack in the order in which they are computed."""
    if layer.part == "attention":
        return (*_ATTENTION, "output")
    if not layer.is_stack:
        return _ORDER[layer.norm.placement]
    embedded = ("embedded",) if layer.embedding is not None else ()
    final_norm = ("final_norm",) if layer.stack.final_norm else ()
    return (*embedded, *map(layer_stage, range(layer.stack.layers)), *final_norm, "output")


def layer_stage(number: int) -> str:
    """The stage name of the output of layer `number` of a stack, from 0."""
    return f"layer_{number}"


def kind_of(stage: str) -> str:
    """The stage's name in the table of T-1: `layer_k` for `layer_0`, `layer_1`, …"""
    return "layer_k" if re.fullmatch(r"layer_[0-9]+", stage) else stage


def axes_of(stage: str) -> str:
    """The letters of a stage's axes in self-attention, where T is S."""
    return SHAPES[kind_of(stage)].replace("T", "S")


def stage_shape(stage: str, layer: "Layer", situation: "Situation") -> tuple[int, ...]:
    sizes = {
        "B": situation.batch,
        "S": situation.sequence,
        "T": situation.keys,
        "D": layer.d_model,
        "H": layer.attention.num_heads,
        "d": layer.head_dim,
        "F": layer.feed_forward.d_ff,
    }
    return tuple(sizes[letter] for letter in SHAPES[kind_of(stage)].split())
