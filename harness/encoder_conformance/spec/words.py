"""A layer's choices in words, for a line: those that a layer need not make (clauses E-19 to E-32)."""

from collections.abc import Iterator

from encoder_conformance.spec.layer import Layer


def more_choices(layer: Layer) -> Iterator[str]:
    """`gated`, `rope θ 10000 halves`, `window 64 before and 64 after` and so on, for what the layer chooses of it."""
    if layer.feed_forward.gated:
        yield "gated"
    yield from _of_norms(layer)
    yield from _of_attention(layer)
    if layer.layer_scale:
        yield f"layer scale of {' and '.join(layer.layer_scale)}"
    if layer.residual_scale != 1.0:
        yield f"branches times {layer.residual_scale:.6g}"


def _of_norms(layer: Layer) -> Iterator[str]:
    if not layer.norm.shift:
        yield "norms without shift"
    if not layer.norm.first:
        yield "no first norm"
    if (qk := layer.attention.qk_norm) is not None:
        yield f"{qk.kind} of query and key over {'each head' if qk.over == 'head' else 'all heads'}"


def _of_attention(layer: Layer) -> Iterator[str]:
    attention = layer.attention
    if attention.head_dim is not None:
        yield f"heads of {attention.head_dim}"
    if attention.kv_heads is not None:
        yield f"{attention.kv_heads} head{'s' * (attention.kv_heads > 1)} of key and value"
    if (rope := attention.rope) is not None:
        part = f", {rope.rotated} of {layer.head_dim} features" if rope.rotated else ""
        yield f"rope θ {rope.theta:.6g} {rope.pairing}{part}"
    if (bias := attention.position_bias) is not None:
        yield f"position bias in {bias.buckets} buckets up to {bias.max_distance}"
    if (window := attention.window) is not None:
        yield f"window {window.left} before and {window.right} after"
    if attention.softcap is not None:
        yield f"scores capped at {attention.softcap:.6g}"
