"""The sizes of a model of transformers whose defaults are wider than a check can carry: all are divided by one number,
so that its choices, and the ratios of its sizes, stay."""

from collections.abc import Mapping
from typing import Any

from encoder_conformance.spec.words import listed

WIDEST = 1024
"""Features of x. Above it an oracle in float64, with the rounding noise of each step, takes minutes a layer."""
_AIM = 640
_FEWEST = 2
"""Heads: of one nobody can tell whether it is repeated or tiled."""
_WIDTHS = ("hidden_size", "d_model", "dim", "emb_dim", "n_embd")
_OTHERS = (
    "num_attention_heads", "num_key_value_heads", "encoder_attention_heads", "decoder_attention_heads", "num_heads",
    "n_heads", "n_head", "intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "hidden_dim", "n_inner",
)  # fmt: skip
"""The configurations' names of what is divided together."""


def narrowed(defaults: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, int]:
    """Key of a configuration → its size in the place of its default; {} for one that is narrow enough, whose sizes
    somebody gave, or whose sizes no number divides."""
    held = {key: defaults[key] for key in (*_WIDTHS, *_OTHERS) if isinstance(defaults.get(key), int)}
    width = max((held[key] for key in _WIDTHS if key in held), default=0)
    if width <= WIDEST or held.keys() & arguments.keys():
        return {}
    least = min(held.values()) // _FEWEST
    dividing = [by for by in range(2, least + 1) if not any(size % by for size in held.values())]
    by = next((by for by in dividing if width // by <= _AIM), max(dividing, default=1))
    return {key: size // by for key, size in held.items()} if by > 1 else {}


def said_of(defaults: Mapping[str, Any], chosen: Mapping[str, int]) -> str:
    """What a verdict says of the sizes that were chosen; "" where none were."""
    if not chosen:
        return ""
    key, width = max(((key, defaults[key]) for key in chosen), key=lambda each: each[0] in _WIDTHS)
    sizes = listed([f"{name} {size}" for name, size in chosen.items()])
    return f"its own {key} is {width}: it was made with {sizes}; --arg {key}={width} asks it at its own sizes"
