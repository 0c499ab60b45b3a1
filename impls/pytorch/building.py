"""The encoder of a layer description: each of its choices is a part that is made and passed in, or left out."""

from typing import Any

import torch
from torch import nn

from encoder_conformance import stack_of
from encoder_conformance.impls.bases.choices import Description, Heads, norm_places, scaled_by
from encoder_conformance.impls.pytorch.attention import Appended, Maps, MultiHeadAttention, Options, SharedByHeads
from encoder_conformance.impls.pytorch.cross import CrossAttention
from encoder_conformance.impls.pytorch.encoder import EncoderLayer, SubLayer
from encoder_conformance.impls.pytorch.feed_forward import FeedForward
from encoder_conformance.impls.pytorch.positions import ClippedBias, LinearBias, PositionBias, Rotation, Window
from encoder_conformance.impls.pytorch.softmax import MaskedSoftmax
from encoder_conformance.impls.pytorch.stack import Embedding, Encoder, LearnedPositions, sinusoidal
from encoder_conformance.spec.plan import has_bias, with_attributes

NORMS: dict[str, type[nn.LayerNorm | nn.RMSNorm]] = {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}  # E-1, E-9
EPSILON = torch.tensor(1e-5, dtype=torch.float32).item()  # L-2: a float32 number, in a float64 layer too


def encoder_of(layer: Description) -> Encoder | EncoderLayer | CrossAttention:
    if layer["part"] == "attention":
        return CrossAttention(attention_of(layer))
    return Encoder(**stack_parts(layer)) if stack_of(layer) else EncoderLayer(**layer_parts(layer))


def stack_parts(layer: Description) -> dict[str, Any]:
    """The arguments of Encoder."""
    stack, parts = stack_of(layer), dict[str, Any]()
    if layer["embedding"]:
        parts["embedding"] = embedding_of(layer)
    shared = position_bias_of(layer["attention"]) if stack.get("shared_position_bias") else None  # E-34
    parts["layers"] = [EncoderLayer(**layer_parts(layer, number, shared)) for number in range(stack["layers"])]
    parts["norm"] = norm_of(layer) if stack["final_norm"] else None
    return parts


def embedding_of(layer: Description) -> Embedding:
    D, chosen, parts = layer["d_model"], layer["embedding"], dict[str, Any]()
    if chosen["vocabulary"] is not None:
        parts["tokens"] = nn.Embedding(chosen["vocabulary"], D)
        parts["scale"] = D**0.5 if chosen.get("scale") == "sqrt_d_model" else 1.0
    if types := chosen.get("token_types"):
        parts["types"] = nn.Embedding(types, D)
    if chosen["positions"] == "sinusoidal":
        parts["sinusoidal"] = sinusoidal
    if table := chosen.get("position_table"):
        skips = table["counted"] == "valid"
        parts["learned"] = LearnedPositions(table["rows"], table["first"], D, skips_padding=skips)
    if chosen.get("norm"):
        parts["norm"] = norm_of(layer)
    return Embedding(nn.Dropout(layer["dropout"]["embedded"]), **parts)


def layer_parts(layer: Description, number: int = 0, shared: PositionBias | None = None) -> dict[str, Any]:
    """The arguments of EncoderLayer. `number`: the layer's in a stack, from 0. `shared`: the bias of all its layers."""
    rates, weight = layer["dropout"], layer.get("residual_scale")

    def around(at: int, name: str, body: MultiHeadAttention | FeedForward, output: str) -> SubLayer:
        norms = {place: norm_of(layer) for place in norm_places(layer, at, number)}
        gain = nn.Parameter(torch.ones(layer["d_model"])) if name in layer.get("layer_scale", ()) else None
        return SubLayer(output, body, nn.Dropout(rates[output]), **norms, gain=gain, weight=weight)

    parallel = layer.get("parallel")
    return {
        "parallel": parallel is not None,
        "shared_norm": norm_of(layer) if parallel == "one_norm" else None,
        "attention": around(1, "attention", attention_of(layer, number, shared), "attention_output"),
        "feed_forward": around(2, "feed_forward", feed_forward_of(layer), "ffn_output"),
    }


def norm_of(layer: Description) -> nn.LayerNorm | nn.RMSNorm:
    chosen = layer["norm"]
    return made_norm(chosen["kind"], layer["d_model"], chosen["epsilon"], shift=chosen.get("shift", True))


def made_norm(kind: str, size: int, epsilon: float, *, shift: bool) -> nn.LayerNorm | nn.RMSNorm:
    without = {"bias": False} if kind == "layer_norm" and not shift else {}  # E-21
    return NORMS[kind](size, eps=epsilon, **without)


def attention_of(layer: Description, number: int = 0, shared_bias: PositionBias | None = None) -> MultiHeadAttention:
    D, (H, K, d), chosen, described = layer["d_model"], Heads.of(layer), layer["attention"], with_attributes(layer)

    def projection(name: str, heads: int) -> nn.Linear:
        bias = has_bias(described, f"attention.{name}")
        shared = chosen["projections"] == "shared_by_heads"
        return SharedByHeads(d, H, bias=bias) if shared else nn.Linear(D, heads * d, bias=bias)

    query, key, value = projection("query", H), projection("key", K), projection("value", K)
    maps = Maps(query, key, value, nn.Linear(H * d, D, bias=chosen["output_bias"]))
    dropout, options = nn.Dropout(layer["dropout"]["attention_weights"]), options_of(layer, number)
    options["position_bias"] = shared_bias or position_bias_of(chosen)
    options["holds_bias"] = shared_bias is None or number == 0
    return MultiHeadAttention(maps, H, scaled_by(layer), MaskedSoftmax.of(layer), dropout, Options(**options))


def options_of(layer: Description, number: int) -> dict[str, Any]:
    """What attention does beside the classic one, in layer `number` of a stack."""
    chosen, (H, K, d) = layer["attention"], Heads.of(layer)
    options: dict[str, Any] = {"rotation": Rotation.of(layer, number), "window": Window.of(layer, number)}
    if norm := chosen.get("qk_norm"):
        sizes = (d, d) if norm["over"] == "head" else (H * d, K * d)
        norms = tuple(made_norm(norm["kind"], size, layer["norm"]["epsilon"], shift=norm["shift"]) for size in sizes)
        options["norms_of_heads" if norm["over"] == "head" else "norms"] = norms
    if kind := chosen.get("appended_key"):
        size = K * d if kind == "learned" else None
        options["appended"] = Appended(size), Appended(size)
    return {**options, "softcap": chosen.get("softcap")}


def position_bias_of(chosen: Description) -> PositionBias | LinearBias | None:
    if (bias := chosen.get("position_bias")) is None:
        return None
    if bias.get("distances") == "linear":
        return LinearBias(bias.get("slopes"), chosen["num_heads"])
    by_bucket = ClippedBias if bias.get("distances") == "clipped" else PositionBias
    return by_bucket(bias["buckets"], bias["max_distance"], chosen["num_heads"])


def feed_forward_of(layer: Description) -> FeedForward:
    D, chosen, described = layer["d_model"], layer["feed_forward"], with_attributes(layer)
    hidden = nn.Linear(D, chosen["d_ff"], bias=has_bias(described, "feed_forward.hidden"))
    output = nn.Linear(chosen["d_ff"], D, bias=has_bias(described, "feed_forward.output"))
    gate = nn.Linear(D, chosen["d_ff"], bias=has_bias(described, "feed_forward.gate")) if chosen.get("gated") else None
    return FeedForward(hidden, chosen["activation"], output, nn.Dropout(layer["dropout"]["ffn_activation"]), gate)


def pre_gelu_512() -> EncoderLayer:
    """The specification's layer of that name, composed by hand."""
    D, H, F = 512, 8, 2048
    maps = Maps(*(nn.Linear(D, D) for _ in range(4)))
    attention = MultiHeadAttention(maps, H, D // H, MaskedSoftmax(), nn.Dropout(0.1))
    feed_forward = FeedForward(nn.Linear(D, F), "gelu", nn.Linear(F, D), nn.Dropout(0.1))
    return EncoderLayer(
        attention=SubLayer("attention_output", attention, nn.Dropout(0.1), norm_before=nn.LayerNorm(D, eps=EPSILON)),
        feed_forward=SubLayer("ffn_output", feed_forward, nn.Dropout(0.1), norm_before=nn.LayerNorm(D, eps=EPSILON)),
    )
