"""The encoder of a layer description: each of its choices is a part that is made and passed in, or left out."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from encoder_conformance import stack_of
from encoder_conformance.impls.pytorch.attention import Maps, MultiHeadAttention, SharedByHeads
from encoder_conformance.impls.pytorch.cross import CrossAttention
from encoder_conformance.impls.pytorch.encoder import EncoderLayer, SubLayer
from encoder_conformance.impls.pytorch.feed_forward import FeedForward
from encoder_conformance.impls.pytorch.softmax import MaskedSoftmax
from encoder_conformance.impls.pytorch.stack import Encoder, sinusoidal
from encoder_conformance.spec.plan import has_bias, with_attributes

Description = Mapping[str, Any]
NORMS: dict[str, type[nn.LayerNorm | nn.RMSNorm]] = {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}  # E-1, E-9
PLACES = {"pre": "norm_before", "post": "norm_of_sum"}  # E-3, E-4
POSITIONS = {"none": None, "sinusoidal": sinusoidal}  # E-16
EPSILON = torch.tensor(1e-5, dtype=torch.float32).item()  # L-2: a float32 number, in a float64 layer too


def encoder_of(layer: Description) -> Encoder | EncoderLayer | CrossAttention:
    if layer["part"] == "attention":
        return CrossAttention(attention_of(layer))
    return Encoder(**stack_parts(layer)) if stack_of(layer) else EncoderLayer(**sublayers(layer))


def stack_parts(layer: Description) -> dict[str, Any]:
    """The arguments of Encoder."""
    stack, parts = stack_of(layer), dict[str, Any]()
    if layer["embedding"]:
        parts["embedding"] = nn.Embedding(stack["vocabulary"], layer["d_model"])
        parts["positions"] = POSITIONS[stack["positions"]]
        parts["dropout"] = nn.Dropout(layer["dropout"]["embedded"])
    parts["layers"] = [EncoderLayer(**sublayers(layer)) for _ in range(stack["layers"])]
    parts["norm"] = norm_of(layer) if stack["final_norm"] else None
    return parts


def sublayers(layer: Description) -> dict[str, SubLayer]:
    """The arguments of EncoderLayer."""
    place, rates = PLACES[layer["norm"]["placement"]], layer["dropout"]

    def around(body: MultiHeadAttention | FeedForward, rate: float) -> SubLayer:
        return SubLayer(body, nn.Dropout(rate), **{place: norm_of(layer)})

    return {
        "attention": around(attention_of(layer), rates["attention_output"]),
        "feed_forward": around(feed_forward_of(layer), rates["ffn_output"]),
    }


def norm_of(layer: Description) -> nn.LayerNorm | nn.RMSNorm:
    return NORMS[layer["norm"]["kind"]](layer["d_model"], eps=layer["norm"]["epsilon"])


def attention_of(layer: Description) -> MultiHeadAttention:
    D, chosen, described = layer["d_model"], layer["attention"], with_attributes(layer)
    H, d = chosen["num_heads"], D // chosen["num_heads"]
    shared, filled, row = chosen["projections"] == "shared_by_heads", chosen["masked_score"], chosen["fully_masked_row"]

    def projection(name: str) -> nn.Linear:
        bias = has_bias(described, f"attention.{name}")
        return SharedByHeads(d, H, bias=bias) if shared else nn.Linear(D, D, bias=bias)

    query, key, value = (projection(name) for name in ("query", "key", "value"))
    maps = Maps(query, key, value, nn.Linear(D, D, bias=chosen["output_bias"]))
    softmax = MaskedSoftmax(None if filled == "minus_infinity" else filled, "zero" if row == "unspecified" else row)
    scaled_by, dropout = D if chosen["scale"] == "d_model" else d, nn.Dropout(layer["dropout"]["attention_weights"])
    return MultiHeadAttention(maps, H, scaled_by, softmax, dropout)


def feed_forward_of(layer: Description) -> FeedForward:
    D, chosen, described = layer["d_model"], layer["feed_forward"], with_attributes(layer)
    hidden = nn.Linear(D, chosen["d_ff"], bias=has_bias(described, "feed_forward.hidden"))
    output = nn.Linear(chosen["d_ff"], D, bias=has_bias(described, "feed_forward.output"))
    return FeedForward(hidden, chosen["activation"], output, nn.Dropout(layer["dropout"]["ffn_activation"]))


def pre_gelu_512() -> EncoderLayer:
    """The specification's layer of that name, composed by hand."""
    D, H, F = 512, 8, 2048
    maps = Maps(*(nn.Linear(D, D) for _ in range(4)))
    attention = MultiHeadAttention(maps, H, D // H, MaskedSoftmax(), nn.Dropout(0.1))
    feed_forward = FeedForward(nn.Linear(D, F), "gelu", nn.Linear(F, D), nn.Dropout(0.1))
    return EncoderLayer(
        attention=SubLayer(attention, nn.Dropout(0.1), norm_before=nn.LayerNorm(D, eps=EPSILON)),
        feed_forward=SubLayer(feed_forward, nn.Dropout(0.1), norm_before=nn.LayerNorm(D, eps=EPSILON)),
    )
