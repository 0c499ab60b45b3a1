"""The encoder of a layer description: each of its choices is a part that is made and passed in, or left out."""

from collections.abc import Mapping
from typing import Any

from encoder_conformance import stack_of
from encoder_conformance.impls.jax_pure.attention import Attention
from encoder_conformance.impls.jax_pure.encoder import EncoderLayer, SubLayer
from encoder_conformance.impls.jax_pure.feed_forward import FeedForward
from encoder_conformance.impls.jax_pure.positions import PositionBias, Rotation, Window
from encoder_conformance.impls.jax_pure.primitives import Norm, layer_norm, rms_norm
from encoder_conformance.impls.jax_pure.softmax import MaskedSoftmax
from encoder_conformance.impls.jax_pure.stack import CrossAttention, Encoder, sinusoidal

Description = Mapping[str, Any]
NORMS = {"layer_norm": layer_norm, "rms_norm": rms_norm}
PLACES = {
    "pre": ("norm_before",),
    "post": ("norm_of_sum",),
    "sandwich": ("norm_before", "norm_after"),
}  # E-3, E-4, E-25
POSITIONS = {"none": None, "sinusoidal": sinusoidal}


def encoder_of(layer: Description) -> EncoderLayer | Encoder | CrossAttention:
    if layer["part"] == "attention":
        return CrossAttention(attention_of(layer))
    if not (stack := stack_of(layer)):
        return layer_of(layer)
    norm, positions = norm_of(layer) if stack["final_norm"] else None, POSITIONS[stack.get("positions", "none")]
    return Encoder(layer_of(layer), norm, positions, layer["dropout"]["embedded"])


def layer_of(layer: Description) -> EncoderLayer:
    rates = layer["dropout"]
    around: dict[str, Any] = dict.fromkeys(PLACES[layer["norm"]["placement"]], norm_of(layer))
    around["weight"] = layer.get("residual_scale", 1.0)
    feed_forward = FeedForward(layer["feed_forward"]["activation"], rates["ffn_activation"])
    return EncoderLayer(
        (
            SubLayer("attention", "attention_output", attention_of(layer), rates["attention_output"], **around),
            SubLayer("feed_forward", "ffn_output", feed_forward, rates["ffn_output"], **around),
        )
    )


def norm_of(layer: Description) -> Norm:
    return Norm(NORMS[layer["norm"]["kind"]], layer["norm"]["epsilon"])


def attention_of(layer: Description) -> Attention:
    D, chosen = layer["d_model"], layer["attention"]
    H, d = chosen["num_heads"], chosen.get("head_dim") or D // chosen["num_heads"]
    scaled_by = {"d_model": D, "head_dim": d}.get(chosen["scale"], chosen["scale"])
    rate = layer["dropout"]["attention_weights"]
    return Attention(D, H, scaled_by, softmax_of(layer), rate, chosen.get("head_dim"), **options_of(layer, d))


def options_of(layer: Description, d: int) -> dict[str, Any]:
    """What attention does beside the classic one, of heads of d features."""
    chosen, options = layer["attention"], dict[str, Any]()
    if norm := chosen.get("qk_norm"):
        options |= {"norm": Norm(NORMS[norm["kind"]], layer["norm"]["epsilon"]), "over_all": norm["over"] == "all"}
    if rope := chosen.get("rope"):
        options["rotation"] = Rotation(rope["theta"], rope.get("rotated", d), rope["pairing"] == "interleaved")
    if bias := chosen.get("position_bias"):
        options["position_bias"] = PositionBias(**bias)
    if window := chosen.get("window"):
        options["window"] = Window(**window)
    return {**options, "softcap": chosen.get("softcap")}


def softmax_of(layer: Description) -> MaskedSoftmax:
    filled, row = layer["attention"]["masked_score"], layer["attention"]["fully_masked_row"]
    return MaskedSoftmax(None if filled == "minus_infinity" else filled, "uniform" if row == "unspecified" else row)
