"""The stages of an encoder layer: names, shapes, and the order in which they are computed (clause T-1).

Sizes: B batch, S sequence, D d_model, H num_heads, d head_dim, F d_ff.
"""

from harness.spec.layer import Layer
from harness.spec.situation import Situation

SHAPES: dict[str, str] = {
    "norm1": "B S D",
    "query": "B S D",
    "key": "B S D",
    "value": "B S D",
    "query_heads": "B H S d",
    "key_heads": "B H S d",
    "value_heads": "B H S d",
    "attention_scores": "B H S S",
    "attention_weights": "B H S S",
    "context": "B H S d",
    "context_merged": "B S D",
    "attention_output": "B S D",
    "residual1": "B S D",
    "norm2": "B S D",
    "ffn_hidden": "B S F",
    "ffn_activation": "B S F",
    "ffn_output": "B S D",
    "residual2": "B S D",
    "output": "B S D",
}
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


def stages(layer: Layer) -> tuple[str, ...]:
    """The stages of `layer` in the order in which they are computed."""
    return _ORDER[layer.norm.placement]


def stage_shape(stage: str, layer: Layer, situation: Situation) -> tuple[int, ...]:
    sizes = {
        "B": situation.batch,
        "S": situation.sequence,
        "D": layer.d_model,
        "H": layer.attention.num_heads,
        "d": layer.head_dim,
        "F": layer.feed_forward.d_ff,
    }
    return tuple(sizes[letter] for letter in SHAPES[stage].split())
