"""The stages of an encoder: names, shapes, and the order in which they are computed (clauses T-1 and T-3).

Sizes: B batch, S sequence, T keys (S without a memory), D d_model, H num_heads, d head_dim, F d_ff.
"""

import re
from functools import lru_cache, partial
from itertools import chain
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
"""`step_of` a stage → its axes. `layer_k` stands for every layer of a stack."""
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


INSIDE_UP_TO = 4
"""The largest number of layers of a stack that shows the stages inside them (clause T-3)."""


def shows_inside(layers: int) -> bool:
    """Whether a stack of so many layers shows the stages inside them, as `layer_0.norm1` and so on (clause T-3).

    Example: `shows_inside(4)` is True, `shows_inside(5)` is False.
    """
    return layers <= INSIDE_UP_TO


def stages(layer: "Layer") -> tuple[str, ...]:
    """The stages of a layer or stack in the order in which they are computed."""
    if layer.part == "attention":
        return (*_ATTENTION, "output")
    if not layer.is_stack:
        return _ORDER[layer.norm.placement]
    embedded = ("embedded",) if layer.embedding is not None else ()
    final_norm = ("final_norm",) if layer.stack.final_norm else ()
    return (*embedded, *chain.from_iterable(map(partial(_of_layer, layer), range(layer.stack.layers))), *final_norm,
            "output")  # fmt: skip


def _of_layer(layer: "Layer", number: int) -> tuple[str, ...]:
    """The stages inside layer `number` of a stack, where they are shown, and its output."""
    name = layer_stage(number)
    inside = _ORDER[layer.norm.placement][:-1] if shows_inside(layer.stack.layers) else ()
    return (*(f"{name}.{stage}" for stage in inside), name)


def layer_stage(number: int) -> str:
    """The stage name of the output of layer `number` of a stack, from 0."""
    return f"layer_{number}"


@lru_cache(maxsize=4096)
def kind_of(stage: str) -> str:
    """The stage without the number of its layer: `layer_k` for `layer_0`, `layer_k.norm1` for `layer_0.norm1`."""
    return re.sub(r"^layer_[0-9]+(?=\.|$)", "layer_k", stage)


@lru_cache(maxsize=4096)
def step_of(stage: str) -> str:
    """The stage's name in the table of T-1: `norm1` for `layer_0.norm1`, `layer_k` for `layer_0`."""
    return kind_of(stage).removeprefix("layer_k.")


def layer_of(stage: str) -> str:
    """The prefix of a stage inside a layer of a stack, `layer_0.`; "" for any other stage."""
    return stage.removesuffix(step_of(stage)) if "." in stage else ""


def is_stage(name: str) -> bool:
    """Whether some layer or stack has a stage of this name, or of this kind."""
    inside = kind_of(name).startswith("layer_k.")
    return step_of(name) in (_ORDER["pre"][:-1] if inside else SHAPES)


def axes_of(stage: str) -> str:
    """The letters of a stage's axes in self-attention, where T is S."""
    return SHAPES[step_of(stage)].replace("T", "S")


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
    return tuple(sizes[letter] for letter in SHAPES[step_of(stage)].split())
