"""The encoder of a layer description: each of its choices is a part that is made and passed in, or left out."""

from collections.abc import Mapping
from typing import Any

from encoder_conformance import stack_of
from encoder_conformance.impls.jax_pure.attention import Attention
from encoder_conformance.impls.jax_pure.encoder import EncoderLayer, SubLayer
from encoder_conformance.impls.jax_pure.feed_forward import FeedForward
from encoder_conformance.impls.jax_pure.primitives import Norm, layer_norm, rms_norm
from encoder_conformance.impls.jax_pure.softmax import MaskedSoftmax
from encoder_conformance.impls.jax_pure.stack import CrossAttention, Encoder, sinusoidal

Description = Mapping[str, Any]
NORMS = {"layer_norm": layer_norm, "rms_norm": rms_norm}
PLACES = {"pre": "norm_before", "post": "norm_of_sum"}  # E-3, E-4
POSITIONS = {"none": None, "sinusoidal": sinusoidal}


def encoder_of(layer: Description) -> EncoderLayer | Encoder | CrossAttention:
    if layer["part"] == "attention":
        return CrossAttention(attention_of(layer))
    if not (stack := stack_of(layer)):
        return layer_of(layer)
    norm, positions = norm_of(layer) if stack["final_norm"] else None, POSITIONS[stack.get("positions", "none")]
    return Encoder(layer_of(layer), norm, positions, layer["dropout"]["embedded"])


def layer_of(layer: Description) -> EncoderLayer:
    rates, norm = layer["dropout"], {PLACES[layer["norm"]["placement"]]: norm_of(layer)}
    feed_forward = FeedForward(layer["feed_forward"]["activation"], rates["ffn_activation"])
    return EncoderLayer(
        (
            SubLayer("attention", attention_of(layer), rates["attention_output"], **norm),
            SubLayer("feed_forward", feed_forward, rates["ffn_output"], **norm),
        )
    )


def norm_of(layer: Description) -> Norm:
    return Norm(NORMS[layer["norm"]["kind"]], layer["norm"]["epsilon"])


def attention_of(layer: Description) -> Attention:
    D, H, scale = layer["d_model"], layer["attention"]["num_heads"], layer["attention"]["scale"]
    scaled_by = D if scale == "d_model" else D // H
    return Attention(D, H, scaled_by, softmax_of(layer), layer["dropout"]["attention_weights"])


def softmax_of(layer: Description) -> MaskedSoftmax:
    filled, row = layer["attention"]["masked_score"], layer["attention"]["fully_masked_row"]
    return MaskedSoftmax(None if filled == "minus_infinity" else filled, "uniform" if row == "unspecified" else row)
