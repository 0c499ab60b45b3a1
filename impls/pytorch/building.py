"""The encoder of a layer description: each of its choices is a part that is made and passed in, or left out."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from encoder_conformance import stack_of
from encoder_conformance.impls.pytorch.attention import Maps, MultiHeadAttention, Options, SharedByHeads
from encoder_conformance.impls.pytorch.cross import CrossAttention
from encoder_conformance.impls.pytorch.encoder import EncoderLayer, SubLayer
from encoder_conformance.impls.pytorch.feed_forward import FeedForward
from encoder_conformance.impls.pytorch.positions import PositionBias, Rotation, Window
from encoder_conformance.impls.pytorch.softmax import MaskedSoftmax
from encoder_conformance.impls.pytorch.stack import Embedding, Encoder, LearnedPositions, sinusoidal
from encoder_conformance.spec.attention_choices import is_global, theta_of
from encoder_conformance.spec.plan import has_bias, with_attributes

Description = Mapping[str, Any]
NORMS: dict[str, type[nn.LayerNorm | nn.RMSNorm]] = {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}  # E-1, E-9
PLACES = {
    "pre": ("norm_before",),
    "post": ("norm_of_sum",),
    "sandwich": ("norm_before", "norm_after"),
}  # E-3, E-4, E-25
EPSILON = torch.tensor(1e-5, dtype=torch.float32).item()  # L-2: a float32 number, in a float64 layer too


def encoder_of(layer: Description) -> Encoder | EncoderLayer | CrossAttention:
    if layer["part"] == "attention":
        return CrossAttention(attention_of(layer))
    return Encoder(**stack_parts(layer)) if stack_of(layer) else EncoderLayer(**sublayers(layer))


def stack_parts(layer: Description) -> dict[str, Any]:
    """The arguments of Encoder."""
    stack, parts = stack_of(layer), dict[str, Any]()
    if layer["embedding"]:
        parts["embedding"] = embedding_of(layer)
    shared = position_bias_of(layer["attention"]) if stack.get("shared_position_bias") else None  # E-34
    parts["layers"] = [EncoderLayer(**sublayers(layer, number, shared)) for number in range(stack["layers"])]
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


def sublayers(layer: Description, number: int = 0, shared: PositionBias | None = None) -> dict[str, SubLayer]:
    """The arguments of EncoderLayer. `number`: the layer's in a stack, from 0. `shared`: the bias of all its layers."""
    rates, weight = layer["dropout"], layer.get("residual_scale")

    def around(name: str, body: MultiHeadAttention | FeedForward, output: str, *, normed: bool = True) -> SubLayer:
        norms = {
            place: norm_of(layer) for place in PLACES[layer["norm"]["placement"]] if normed or place == "norm_after"
        }
        gain = nn.Parameter(torch.ones(layer["d_model"])) if name in layer.get("layer_scale", ()) else None
        return SubLayer(output, body, nn.Dropout(rates[output]), **norms, gain=gain, weight=weight)

    normed = layer["norm"].get("first", True) or number > 0  # E-24
    return {
        "attention": around("attention", attention_of(layer, number, shared), "attention_output", normed=normed),
        "feed_forward": around("feed_forward", feed_forward_of(layer), "ffn_output"),
    }


def norm_of(layer: Description) -> nn.LayerNorm | nn.RMSNorm:
    chosen = layer["norm"]
    return made_norm(chosen["kind"], layer["d_model"], chosen["epsilon"], shift=chosen.get("shift", True))


def made_norm(kind: str, size: int, epsilon: float, *, shift: bool) -> nn.LayerNorm | nn.RMSNorm:
    without = {"bias": False} if kind == "layer_norm" and not shift else {}  # E-21
    return NORMS[kind](size, eps=epsilon, **without)


def attention_of(layer: Description, number: int = 0, shared_bias: PositionBias | None = None) -> MultiHeadAttention:
    D, chosen, described = layer["d_model"], layer["attention"], with_attributes(layer)
    H, d = chosen["num_heads"], chosen.get("head_dim") or D // chosen["num_heads"]
    if "head_dim" not in chosen and D % H:
        raise ValueError(f"d_model = {D} is not divisible by num_heads = {H}")
    wide = {"query": H * d, "key": chosen.get("kv_heads", H) * d, "value": chosen.get("kv_heads", H) * d}
    shared, filled, row = chosen["projections"] == "shared_by_heads", chosen["masked_score"], chosen["fully_masked_row"]

    def projection(name: str) -> nn.Linear:
        bias = has_bias(described, f"attention.{name}")
        return SharedByHeads(d, H, bias=bias) if shared else nn.Linear(D, wide[name], bias=bias)

    query, key, value = (projection(name) for name in ("query", "key", "value"))
    maps = Maps(query, key, value, nn.Linear(H * d, D, bias=chosen["output_bias"]))
    softmax = MaskedSoftmax(None if filled == "minus_infinity" else filled, "zero" if row == "unspecified" else row)
    scaled_by = {"d_model": D, "head_dim": d}.get(chosen["scale"], chosen["scale"])
    dropout, options = nn.Dropout(layer["dropout"]["attention_weights"]), options_of(layer, wide, d, number)
    options["position_bias"] = shared_bias or position_bias_of(chosen)
    options["holds_bias"] = shared_bias is None or number == 0
    return MultiHeadAttention(maps, H, scaled_by, softmax, dropout, Options(**options))


def options_of(layer: Description, wide: Mapping[str, int], d: int, number: int) -> dict[str, Any]:
    """`wide`: query, key and value → the features of all heads together. `number`: the layer's in a stack, from 0."""
    chosen, epsilon, described = layer["attention"], layer["norm"]["epsilon"], with_attributes(layer)
    options = dict[str, Any]()
    if norm := chosen.get("qk_norm"):
        sizes = (d, d) if norm["over"] == "head" else (wide["query"], wide["key"])
        norms = tuple(made_norm(norm["kind"], size, epsilon, shift=norm["shift"]) for size in sizes)
        options["norms_of_heads" if norm["over"] == "head" else "norms"] = norms
    if rope := chosen.get("rope"):
        theta = theta_of(described, number)
        options["rotation"] = Rotation(theta, rope.get("rotated", d), rope["pairing"] == "interleaved")
    if (window := chosen.get("window")) and not is_global(described, number):  # E-33
        options["window"] = Window(**window)
    return {**options, "softcap": chosen.get("softcap")}


def position_bias_of(chosen: Description) -> PositionBias | None:
    bias = chosen.get("position_bias")
    return None if bias is None else PositionBias(bias["buckets"], bias["max_distance"], chosen["num_heads"])


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
