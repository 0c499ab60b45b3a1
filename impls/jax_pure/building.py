"""The encoder of a layer description: each of its choices is a part that is made and passed in, or left out."""

from collections.abc import Mapping
from typing import Any

from encoder_conformance import stack_of
from encoder_conformance.impls.jax_pure.attention import Attention
from encoder_conformance.impls.jax_pure.embedding import Embedding, LearnedPositions
from encoder_conformance.impls.jax_pure.encoder import EncoderLayer, SubLayer
from encoder_conformance.impls.jax_pure.feed_forward import FeedForward
from encoder_conformance.impls.jax_pure.positions import PositionBias, Rotation, Window
from encoder_conformance.impls.jax_pure.primitives import Norm, layer_norm, rms_norm
from encoder_conformance.impls.jax_pure.softmax import MaskedSoftmax
from encoder_conformance.impls.jax_pure.stack import CrossAttention, Encoder, sinusoidal
from encoder_conformance.spec.attention_choices import is_global
from encoder_conformance.spec.plan import with_attributes

Description = Mapping[str, Any]
NORMS = {"layer_norm": layer_norm, "rms_norm": rms_norm}
PLACES = {
    "pre": ("norm_before",),
    "post": ("norm_of_sum",),
    "sandwich": ("norm_before", "norm_after"),
}  # E-3, E-4, E-25


def encoder_of(layer: Description) -> EncoderLayer | Encoder | CrossAttention:
    if layer["part"] == "attention":
        return CrossAttention(attention_of(layer))
    if not (stack := stack_of(layer)):
        return layer_of(layer)
    norm, embedding = norm_of(layer) if stack["final_norm"] else None, embedding_of(layer)
    described = with_attributes(layer)
    layers = tuple(layer_of(layer, is_global=is_global(described, number)) for number in range(stack["layers"]))
    return Encoder(layers, norm, embedding)


def embedding_of(layer: Description) -> Embedding | None:
    if not (chosen := layer["embedding"]):
        return None
    parts: dict[str, Any] = {"dropout": layer["dropout"]["embedded"]}
    if chosen.get("scale") == "sqrt_d_model":
        parts["scale"] = layer["d_model"] ** 0.5
    if chosen["positions"] == "sinusoidal":
        parts["sinusoidal"] = sinusoidal
    if table := chosen.get("position_table"):
        parts["learned"] = LearnedPositions(table["first"], skips_padding=table["counted"] == "valid")
    if chosen.get("norm"):
        parts["norm"] = norm_of(layer)
    return Embedding(**parts)


def layer_of(layer: Description, *, is_global: bool = False) -> EncoderLayer:
    """`is_global`: whether it is one of the layers of a stack that attend without the others' window (E-33)."""
    rates = layer["dropout"]
    around: dict[str, Any] = dict.fromkeys(PLACES[layer["norm"]["placement"]], norm_of(layer))
    around["weight"] = layer.get("residual_scale", 1.0)
    feed_forward = FeedForward(layer["feed_forward"]["activation"], rates["ffn_activation"])
    return EncoderLayer(
        (
            SubLayer(
                "attention", "attention_output", attention_of(layer, is_global), rates["attention_output"], **around
            ),
            SubLayer("feed_forward", "ffn_output", feed_forward, rates["ffn_output"], **around),
        )
    )


def norm_of(layer: Description) -> Norm:
    return Norm(NORMS[layer["norm"]["kind"]], layer["norm"]["epsilon"])


def attention_of(layer: Description, is_global: bool = False) -> Attention:
    D, chosen = layer["d_model"], layer["attention"]
    H, d = chosen["num_heads"], chosen.get("head_dim") or D // chosen["num_heads"]
    scaled_by = {"d_model": D, "head_dim": d}.get(chosen["scale"], chosen["scale"])
    rate = layer["dropout"]["attention_weights"]
    return Attention(
        D, H, scaled_by, softmax_of(layer), rate, chosen.get("head_dim"), **options_of(layer, d, is_global)
    )


def options_of(layer: Description, d: int, is_global: bool) -> dict[str, Any]:
    """What attention does beside the classic one, of heads of d features."""
    chosen, options = layer["attention"], dict[str, Any]()
    if norm := chosen.get("qk_norm"):
        options |= {"norm": Norm(NORMS[norm["kind"]], layer["norm"]["epsilon"]), "over_all": norm["over"] == "all"}
    if rope := chosen.get("rope"):
        theta = (layer["stack"]["global_layers"]["theta"] if is_global else None) or rope["theta"]
        options["rotation"] = Rotation(theta, rope.get("rotated", d), rope["pairing"] == "interleaved")
    if bias := chosen.get("position_bias"):
        options["position_bias"] = PositionBias(**bias)
    if (window := chosen.get("window")) and not is_global:
        options["window"] = Window(**window)
    return {**options, "softcap": chosen.get("softcap")}


def softmax_of(layer: Description) -> MaskedSoftmax:
    filled, row = layer["attention"]["masked_score"], layer["attention"]["fully_masked_row"]
    return MaskedSoftmax(None if filled == "minus_infinity" else filled, "uniform" if row == "unspecified" else row)
