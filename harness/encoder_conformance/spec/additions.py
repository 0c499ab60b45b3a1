"""What the layer language was extended by, and which layers use it (rule L-7)."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from encoder_conformance.spec.layer import Distances, Embedding, Layer

Addition = Literal[
    "quick_gelu", "biases", "gated", "layer_scale", "norm_shift", "first_norm", "sandwich", "residual_scale", "scale",
    "head_dim", "kv_heads", "qk_norm", "rope", "position_bias", "window", "softcap", "global_layers",
    "shared_position_bias", "embedding_scale", "token_types", "learned_positions", "embedding_norm", "embedded_input",
    "res_post", "parallel", "clipped_distances", "linear_distances", "appended_key",
]  # fmt: skip


def _chooses(key: str) -> Callable[["Layer"], bool]:
    """Whether a layer's attention has this key at another choice than none."""
    return lambda layer: getattr(layer.attention, key) is not None


def _has_distances(distances: "Distances") -> Callable[["Layer"], bool]:
    """Whether a layer's bias of scores is by distances of this kind."""
    return lambda layer: (bias := layer.attention.position_bias) is not None and bias.distances == distances


def _embeds(chosen: Callable[["Embedding"], bool]) -> Callable[["Layer"], bool]:
    """Whether a layer has an embedding that chooses so."""
    return lambda layer: layer.embedding is not None and chosen(layer.embedding)


ADDITIONS: Mapping[Addition, Callable[["Layer"], bool]] = {
    "quick_gelu": lambda layer: not layer.takes_memory and layer.feed_forward.activation == "quick_gelu",
    "biases": lambda layer: bool(layer.lacks_bias),
    "gated": lambda layer: not layer.takes_memory and layer.feed_forward.gated,
    "layer_scale": lambda layer: bool(layer.layer_scale),
    "norm_shift": lambda layer: not layer.norm.shift,
    "first_norm": lambda layer: not layer.norm.first,
    "sandwich": lambda layer: layer.norm.placement == "sandwich",
    "residual_scale": lambda layer: layer.residual_scale != 1.0,
    "scale": lambda layer: not isinstance(layer.attention.scale, str),
    **{key: _chooses(key) for key in ("head_dim", "kv_heads", "qk_norm", "rope", "position_bias", "window", "softcap")},
    "global_layers": lambda layer: layer.stack.global_layers is not None,
    "shared_position_bias": lambda layer: layer.stack.shared_position_bias,
    "embedding_scale": _embeds(lambda embedding: embedding.scale != "one"),
    "token_types": _embeds(lambda embedding: embedding.token_types is not None),
    "learned_positions": _embeds(lambda embedding: embedding.positions == "learned"),
    "embedding_norm": _embeds(lambda embedding: embedding.norm),
    "embedded_input": _embeds(lambda embedding: embedding.vocabulary is None),
    "res_post": lambda layer: layer.norm.placement == "res_post",
    "parallel": lambda layer: layer.parallel is not None,
    "clipped_distances": _has_distances("clipped"),
    "linear_distances": _has_distances("linear"),
    "appended_key": _chooses("appended_key"),
}
"""What the language was extended by → whether a layer uses it (L-7)."""
