"""The encoder of a layer description: each of its choices is a part that is made and passed in, or left out.

Every part has the dtype policy of the encoder, and the name by which its weights are found.
"""

from collections.abc import Mapping
from typing import Any

from keras import layers

from encoder_conformance import stack_of
from encoder_conformance.impls.keras_tf.attention import Maps, MultiHeadAttention, SharedByHeads
from encoder_conformance.impls.keras_tf.cross import CrossAttention
from encoder_conformance.impls.keras_tf.encoder import EncoderLayer, SubLayer
from encoder_conformance.impls.keras_tf.feed_forward import FeedForward
from encoder_conformance.impls.keras_tf.softmax import MaskedSoftmax
from encoder_conformance.impls.keras_tf.stack import Encoder, sinusoidal
from encoder_conformance.spec.plan import has_bias, with_attributes

Description = Mapping[str, Any]
NORMS = {"layer_norm": layers.LayerNormalization, "rms_norm": layers.RMSNormalization}  # E-1, E-9
PLACES = {"pre": "norm_before", "post": "norm_of_sum"}  # E-3, E-4
POSITIONS = {"none": None, "sinusoidal": sinusoidal}  # E-16


def encoder_of(layer: Description, dtype: str) -> Encoder | EncoderLayer | CrossAttention:
    if layer["part"] == "attention":
        return CrossAttention(attention_of(layer, dtype), dtype=dtype)
    stack = stack_of(layer)
    if not stack:
        return layer_of(layer, dtype)
    parts: dict[str, Any] = {}
    if layer["embedding"]:
        parts["embedding"] = layers.Embedding(stack["vocabulary"], layer["d_model"], name="embedding", dtype=dtype)
        parts["positions"] = POSITIONS[stack["positions"]]
        parts["dropout"] = layers.Dropout(layer["dropout"]["embedded"], name="dropout", dtype=dtype)
    parts["layers"] = [layer_of(layer, dtype, name=f"layer_{number}") for number in range(stack["layers"])]
    parts["norm"] = norm_of(layer, dtype, "norm") if stack["final_norm"] else None
    return Encoder(**parts, dtype=dtype)


def layer_of(layer: Description, dtype: str, name: str | None = None) -> EncoderLayer:
    place, rates = PLACES[layer["norm"]["placement"]], layer["dropout"]

    def around(number: int, body: MultiHeadAttention | FeedForward, rate: float) -> SubLayer:
        dropout = layers.Dropout(rate, name=f"dropout{number}", dtype=dtype)
        return SubLayer(body, dropout, **{place: norm_of(layer, dtype, f"norm{number}")})

    attention, feed_forward = attention_of(layer, dtype), feed_forward_of(layer, dtype)
    sublayers = around(1, attention, rates["attention_output"]), around(2, feed_forward, rates["ffn_output"])
    return EncoderLayer(*sublayers, name=name, dtype=dtype)


def norm_of(layer: Description, dtype: str, name: str) -> layers.Layer:
    return NORMS[layer["norm"]["kind"]](epsilon=layer["norm"]["epsilon"], name=name, dtype=dtype)


def attention_of(layer: Description, dtype: str) -> MultiHeadAttention:
    D, chosen, described = layer["d_model"], layer["attention"], with_attributes(layer)
    H, filled, row = chosen["num_heads"], chosen["masked_score"], chosen["fully_masked_row"]
    kind, size = (SharedByHeads, D // H) if chosen["projections"] == "shared_by_heads" else (layers.Dense, D)
    query, key, value = (
        kind(size, use_bias=has_bias(described, f"attention.{name}"), name=name, dtype=dtype)
        for name in ("query", "key", "value")
    )
    maps = Maps(query, key, value, layers.Dense(D, use_bias=chosen["output_bias"], name="out", dtype=dtype))
    softmax = MaskedSoftmax(None if filled == "minus_infinity" else filled, "uniform" if row == "unspecified" else row)
    dropout = layers.Dropout(layer["dropout"]["attention_weights"], name="dropout", dtype=dtype)
    scaled_by = D if chosen["scale"] == "d_model" else D // H
    return MultiHeadAttention(maps, H, scaled_by, softmax, dropout, name="attention", dtype=dtype)


def feed_forward_of(layer: Description, dtype: str) -> FeedForward:
    D, chosen, described = layer["d_model"], layer["feed_forward"], with_attributes(layer)
    biased = has_bias(described, "feed_forward.hidden"), has_bias(described, "feed_forward.output")
    hidden = layers.Dense(chosen["d_ff"], use_bias=biased[0], name="hidden", dtype=dtype)
    out = layers.Dense(D, use_bias=biased[1], name="out", dtype=dtype)
    dropout = layers.Dropout(layer["dropout"]["ffn_activation"], name="dropout", dtype=dtype)
    return FeedForward(hidden, chosen["activation"], out, dropout, name="feed_forward", dtype=dtype)
