"""The encoder of a layer description: each of its choices is a part that is made and passed in, or left out."""

from typing import Any

from encoder_conformance import stack_of
from encoder_conformance.impls.bases.choices import Description, Heads, norm_places, scaled_by, slope_exponents
from encoder_conformance.impls.jax_pure.attention import Attention
from encoder_conformance.impls.jax_pure.embedding import Embedding, LearnedPositions
from encoder_conformance.impls.jax_pure.encoder import EncoderLayer, SubLayer
from encoder_conformance.impls.jax_pure.feed_forward import FeedForward
from encoder_conformance.impls.jax_pure.positions import ClippedBias, LinearBias, PositionBias, Rotation, Window
from encoder_conformance.impls.jax_pure.primitives import Norm, layer_norm, rms_norm
from encoder_conformance.impls.jax_pure.softmax import MaskedSoftmax
from encoder_conformance.impls.jax_pure.stack import CrossAttention, Encoder, sinusoidal

NORMS = {"layer_norm": layer_norm, "rms_norm": rms_norm}


def encoder_of(layer: Description) -> EncoderLayer | Encoder | CrossAttention:
    if layer["part"] == "attention":
        return CrossAttention(attention_of(layer))
    if not (stack := stack_of(layer)):
        return layer_of(layer)
    norm, embedding = norm_of(layer) if stack["final_norm"] else None, embedding_of(layer)
    return Encoder(tuple(layer_of(layer, number) for number in range(stack["layers"])), norm, embedding)


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


def layer_of(layer: Description, number: int = 0) -> EncoderLayer:
    """`number`: the layer's in a stack, from 0."""
    rates, weight = layer["dropout"], layer.get("residual_scale", 1.0)

    def around(at: int, name: str, body: Attention | FeedForward, output: str) -> SubLayer:
        norms = dict.fromkeys(norm_places(layer, at, number), norm_of(layer))
        return SubLayer(name, output, body, rates[output], **norms, weight=weight)

    feed_forward = FeedForward(layer["feed_forward"]["activation"], rates["ffn_activation"])
    attention = around(1, "attention", attention_of(layer, number), "attention_output")
    both, parallel = (attention, around(2, "feed_forward", feed_forward, "ffn_output")), layer.get("parallel")
    return EncoderLayer(both, parallel is not None, norm_of(layer) if parallel == "one_norm" else None)


def norm_of(layer: Description) -> Norm:
    return Norm(NORMS[layer["norm"]["kind"]], layer["norm"]["epsilon"])


def attention_of(layer: Description, number: int = 0) -> Attention:
    D, chosen, rate = layer["d_model"], layer["attention"], layer["dropout"]["attention_weights"]
    softmax, head_dim = MaskedSoftmax.of(layer), chosen.get("head_dim")
    return Attention(D, Heads.of(layer).number, scaled_by(layer), softmax, rate, head_dim, **options_of(layer, number))


def options_of(layer: Description, number: int) -> dict[str, Any]:
    """What attention does beside the classic one, in layer `number` of a stack."""
    chosen = layer["attention"]
    options: dict[str, Any] = {"rotation": Rotation.of(layer, number), "window": Window.of(layer, number)}
    if norm := chosen.get("qk_norm"):
        options |= {"norm": Norm(NORMS[norm["kind"]], layer["norm"]["epsilon"]), "over_all": norm["over"] == "all"}
    bias = chosen.get("position_bias")
    if bias and bias.get("distances") == "linear":
        options["position_bias"] = LinearBias(slope_exponents(bias.get("slopes"), chosen["num_heads"]))
    elif bias:
        by_bucket = ClippedBias if bias.get("distances") == "clipped" else PositionBias
        options["position_bias"] = by_bucket(bias["buckets"], bias["max_distance"])
    return {**options, "softcap": chosen.get("softcap"), "is_appended": chosen.get("appended_key") is not None}
