"""The encoder of a layer description: each of its choices is a part that is made and passed in, or left out.

Every part has the dtype policy of the encoder, and the name by which its weights are found.
"""

import math
from typing import Any

from keras import layers

from encoder_conformance import stack_of
from encoder_conformance.impls.bases.choices import Description, Heads, norm_places, scaled_by
from encoder_conformance.impls.keras_tf.attention import Appended, Maps, MultiHeadAttention, Options, SharedByHeads
from encoder_conformance.impls.keras_tf.cross import CrossAttention
from encoder_conformance.impls.keras_tf.embedding import Embedding, LearnedPositions, sinusoidal
from encoder_conformance.impls.keras_tf.encoder import EncoderLayer, SubLayer
from encoder_conformance.impls.keras_tf.feed_forward import FeedForward
from encoder_conformance.impls.keras_tf.positions import ClippedBias, Gain, LinearBias, PositionBias, Rotation, Window
from encoder_conformance.impls.keras_tf.softmax import MaskedSoftmax
from encoder_conformance.impls.keras_tf.stack import Encoder
from encoder_conformance.spec.plan import has_bias, with_attributes

NORMS = {"layer_norm": layers.LayerNormalization, "rms_norm": layers.RMSNormalization}  # E-1, E-9


def encoder_of(layer: Description, dtype: str) -> Encoder | EncoderLayer | CrossAttention:
    if layer["part"] == "attention":
        return CrossAttention(attention_of(layer, dtype), dtype=dtype)
    stack = stack_of(layer)
    if not stack:
        return layer_of(layer, dtype, 0)
    parts: dict[str, Any] = {}
    if layer["embedding"]:
        parts["embedding"] = embedding_of(layer, dtype)
    shared = position_bias_of(layer["attention"], dtype) if stack.get("shared_position_bias") else None  # E-34
    parts["layers"] = [layer_of(layer, dtype, number, f"layer_{number}", shared) for number in range(stack["layers"])]
    parts["norm"] = norm_of(layer, dtype, "norm") if stack["final_norm"] else None
    return Encoder(**parts, dtype=dtype)


def embedding_of(layer: Description, dtype: str) -> Embedding:
    D, chosen, parts = layer["d_model"], layer["embedding"], dict[str, Any]()
    if chosen["vocabulary"] is not None:
        parts["tokens"] = layers.Embedding(chosen["vocabulary"], D, name="tokens", dtype=dtype)
        parts["scale"] = math.sqrt(D) if chosen.get("scale") == "sqrt_d_model" else 1.0
    if types := chosen.get("token_types"):
        parts["types"] = layers.Embedding(types, D, name="types", dtype=dtype)
    if chosen["positions"] == "sinusoidal":
        parts["sinusoidal"] = sinusoidal
    if table := chosen.get("position_table"):
        skips = table["counted"] == "valid"
        parts["learned"] = LearnedPositions(
            table["rows"], table["first"], skips_padding=skips, name="learned", dtype=dtype
        )
    if chosen.get("norm"):
        parts["norm"] = norm_of(layer, dtype, "norm")
    dropout = layers.Dropout(layer["dropout"]["embedded"], name="dropout", dtype=dtype)
    return Embedding(dropout, **parts, name="embedding", dtype=dtype)


def layer_of(
    layer: Description, dtype: str, number: int, name: str | None = None, shared: PositionBias | None = None
) -> EncoderLayer:
    """`number`: the layer's in a stack, from 0. `shared`: the bias of all its layers."""

    def around(at: int, body: MultiHeadAttention | FeedForward, output: str) -> SubLayer:
        dropout = layers.Dropout(layer["dropout"][output], name=f"dropout{at}", dtype=dtype)
        parts = {
            place: norm_of(layer, dtype, f"norm_after{at}" if place == "norm_after" else f"norm{at}")
            for place in norm_places(layer, at, number)
        }
        if body.name in layer.get("layer_scale", ()):
            parts["gain"] = Gain(name=f"layer_scale{at}", dtype=dtype)
        return SubLayer(output, body, dropout, **parts, weight=layer.get("residual_scale", 1.0))

    attention, feed_forward = attention_of(layer, dtype, number, shared), feed_forward_of(layer, dtype)
    sublayers = around(1, attention, "attention_output"), around(2, feed_forward, "ffn_output")
    parallel = layer.get("parallel")
    shared_norm = norm_of(layer, dtype, "norm1") if parallel == "one_norm" else None
    return EncoderLayer(*sublayers, parallel=parallel is not None, shared_norm=shared_norm, name=name, dtype=dtype)


def norm_of(layer: Description, dtype: str, name: str) -> layers.Layer:
    chosen = layer["norm"]
    return made_norm(chosen["kind"], chosen["epsilon"], dtype, name, shift=chosen.get("shift", True))


def made_norm(kind: str, epsilon: float, dtype: str, name: str, *, shift: bool) -> layers.Layer:
    without = {"center": False} if kind == "layer_norm" and not shift else {}  # E-21
    return NORMS[kind](epsilon=epsilon, name=name, dtype=dtype, **without)


def attention_of(
    layer: Description, dtype: str, number: int = 0, shared_bias: PositionBias | None = None
) -> MultiHeadAttention:
    D, (H, K, d), chosen, described = layer["d_model"], Heads.of(layer), layer["attention"], with_attributes(layer)

    def projection(name: str, heads: int) -> layers.Dense:
        bias = has_bias(described, f"attention.{name}")
        shared = chosen["projections"] == "shared_by_heads"
        kind, size = (SharedByHeads, d) if shared else (layers.Dense, heads * d)
        return kind(size, use_bias=bias, name=name, dtype=dtype)

    query, key, value = projection("query", H), projection("key", K), projection("value", K)
    maps = Maps(query, key, value, layers.Dense(D, use_bias=chosen["output_bias"], name="out", dtype=dtype))
    softmax, options = MaskedSoftmax.of(layer), options_of(layer, dtype, number)
    dropout = layers.Dropout(layer["dropout"]["attention_weights"], name="dropout", dtype=dtype)
    options["position_bias"] = shared_bias or position_bias_of(chosen, dtype)
    options["holds_bias"] = shared_bias is None or number == 0
    return MultiHeadAttention(
        maps, H, scaled_by(layer), softmax, dropout, Options(**options), name="attention", dtype=dtype
    )


def options_of(layer: Description, dtype: str, number: int) -> dict[str, Any]:
    """What attention does beside the classic one, in layer `number` of a stack."""
    chosen = layer["attention"]
    options: dict[str, Any] = {"rotation": Rotation.of(layer, number), "window": Window.of(layer, number)}
    if norm := chosen.get("qk_norm"):
        epsilon = layer["norm"]["epsilon"]
        options["norms"] = tuple(
            made_norm(norm["kind"], epsilon, dtype, f"{name}_norm", shift=norm["shift"]) for name in ("query", "key")
        )
        options["over_all"] = norm["over"] == "all"
    if kind := chosen.get("appended_key"):
        _, K, d = Heads.of(layer)
        size = K * d if kind == "learned" else None
        options["appended"] = tuple(Appended(size, name=f"appended_{of}", dtype=dtype) for of in ("key", "value"))
    return {**options, "softcap": chosen.get("softcap"), "head_dim": chosen.get("head_dim")}


def position_bias_of(chosen: Description, dtype: str) -> PositionBias | LinearBias | None:
    if not (bias := chosen.get("position_bias")):
        return None
    if bias.get("distances") == "linear":
        return LinearBias(bias.get("slopes"), chosen["num_heads"], name="position_bias", dtype=dtype)
    by_bucket = ClippedBias if bias.get("distances") == "clipped" else PositionBias
    sizes = bias["buckets"], bias["max_distance"], chosen["num_heads"]
    return by_bucket(*sizes, name="position_bias", dtype=dtype)


def feed_forward_of(layer: Description, dtype: str) -> FeedForward:
    D, chosen, described = layer["d_model"], layer["feed_forward"], with_attributes(layer)
    biased = has_bias(described, "feed_forward.hidden"), has_bias(described, "feed_forward.output")
    hidden = layers.Dense(chosen["d_ff"], use_bias=biased[0], name="hidden", dtype=dtype)
    out = layers.Dense(D, use_bias=biased[1], name="out", dtype=dtype)
    dropout, gate = layers.Dropout(layer["dropout"]["ffn_activation"], name="dropout", dtype=dtype), None
    if chosen.get("gated"):
        biased_gate = has_bias(described, "feed_forward.gate")
        gate = layers.Dense(chosen["d_ff"], use_bias=biased_gate, name="gate", dtype=dtype)
    return FeedForward(hidden, chosen["activation"], out, dropout, gate, name="feed_forward", dtype=dtype)
