"""Keys of a layer that contradict each other, in one table (rule L-5)."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pydantic import BaseModel

from encoder_conformance.spec.plan import COMMON_BIAS, OWN_BIAS


@dataclass(frozen=True)
class Contradiction:
    """Two keys, whether their values contradict each other, and the reason. A dot leads into a mapping.

    `unless`: a key that makes it none, where it is true or not null.
    """

    first: str
    second: str
    holds: Callable[[Any, Any], bool]
    reason: str
    unless: str = ""


def _of_attention_alone(key: str, plain: object, reason: str) -> Contradiction:
    """Attention alone has a key at its plain value."""
    return Contradiction(
        "part", key, lambda part, own: part == "attention" and own != plain, f"attention alone {reason} (E-17)"
    )


CONTRADICTIONS = (
    Contradiction(
        "attention.num_heads",
        "d_model",
        lambda num_heads, d_model: d_model % num_heads != 0,
        "the heads share the features evenly (L-1)",
        unless="attention.head_dim",
    ),
    Contradiction(
        "attention.masked_score",
        "attention.fully_masked_row",
        lambda score, row: score != "minus_infinity" and row != "uniform",
        "a query whose scores are all the same number has uniform weights (M-6)",
    ),
    _of_attention_alone("stack.layers", 1, "is not stacked"),
    _of_attention_alone("stack.final_norm", False, "has no norm"),
    _of_attention_alone("embedding", None, "takes x and a memory, and no token ids"),
    Contradiction(
        "dropout.embedded",
        "embedding",
        lambda rate, embedding: rate > 0 and embedding is None,
        "there are no embedded tokens to drop (A-1)",
    ),
    *(
        Contradiction(
            own,
            f"{part}.{COMMON_BIAS[part]}",
            lambda own, common: own is not None and (own or not common),
            f"{COMMON_BIAS[part]} is true where any of its maps has a bias, and a map's own key says only that it has "
            "none (L-3)",
        )
        for own in OWN_BIAS
        for part in (own.partition(".")[0],)
    ),
    Contradiction(
        "attention.qkv_bias",
        "attention",
        lambda any_has, own: any_has and (own.query_bias, own.key_bias, own.value_bias) == (False,) * 3,
        "where none of the three has a bias, qkv_bias is false (L-3)",
    ),
    Contradiction(
        "feed_forward.hidden_bias",
        "feed_forward.output_bias",
        lambda hidden, output: (hidden, output) == (False, False),
        "where neither map has a bias, bias is false (L-3)",
        unless="feed_forward.gated",
    ),
    Contradiction(
        "feed_forward.gated",
        "feed_forward",
        lambda gated, own: gated and (own.gate_bias, own.hidden_bias, own.output_bias) == (False,) * 3,
        "where none of the three has a bias, bias is false (L-3)",
    ),
    Contradiction(
        "attention.head_dim",
        "attention.projections",
        lambda size, projections: size is not None and projections != "full",
        "a map that the heads share is of each head's own slice of d_model (E-12)",
    ),
    Contradiction(
        "attention.head_dim",
        "attention.scale",
        lambda size, scale: size is not None and scale == "d_model",
        "where a head's size is its own, d_model says nothing of scores; scale may be a number (E-20)",
    ),
    Contradiction(
        "attention.kv_heads",
        "attention.num_heads",
        lambda kv_heads, num_heads: kv_heads is not None and num_heads % kv_heads != 0,
        "each head of keys serves as many heads of queries (E-28)",
    ),
    Contradiction(
        "attention.kv_heads",
        "attention.projections",
        lambda kv_heads, projections: kv_heads is not None and projections != "full",
        "heads that share their maps are as many for keys as for queries (E-12)",
    ),
    Contradiction(
        "attention.qk_norm.kind",
        "attention.qk_norm.shift",
        lambda kind, shift: kind == "rms_norm" and bool(shift),
        "an RMSNorm has no shift (E-9)",
    ),
    Contradiction(
        "attention.rope",
        "head_dim",
        lambda rope, size: rope is not None and ((rope.rotated or size) % 2 or (rope.rotated or size) > size),
        "features are rotated by pairs, those of one head (E-22)",
    ),
    Contradiction(
        "attention.position_bias.max_distance",
        "attention.position_bias.buckets",
        lambda distance, buckets: None not in (distance, buckets) and distance <= buckets // 4,
        "the distances below buckets / 4 have a bucket each, and some are beyond (E-23)",
    ),
    Contradiction(
        "attention.position_bias.buckets",
        "attention.position_bias.distances",
        lambda buckets, distances: distances == "logarithmic" and (not buckets or buckets < 4 or buckets % 2 != 0),
        "half of the buckets, two or more, are for keys after the query (E-23)",
    ),
    Contradiction(
        "attention.position_bias.distances",
        "attention.position_bias",
        lambda distances, bias: distances == "clipped" and bias.buckets != 2 * (bias.max_distance or 0) + 1,
        "each distance up to max_distance has a bucket, 2 · max_distance + 1 in all (E-42)",
    ),
    Contradiction(
        "attention.position_bias.max_distance",
        "attention.position_bias",
        lambda distance, bias: bias is not None and (distance is None) != (bias.distances == "linear"),
        "buckets end at a distance, and linear distances nowhere (E-23, E-43)",
    ),
    Contradiction(
        "attention.position_bias.buckets",
        "attention.position_bias",
        lambda buckets, bias: buckets is not None and bias.distances == "linear",
        "linear distances have no buckets (E-43)",
    ),
    Contradiction(
        "attention.position_bias.slopes",
        "attention.position_bias.distances",
        lambda slopes, distances: slopes is not None and distances != "linear",
        "slopes are of linear distances (E-43)",
    ),
    *(
        Contradiction(
            "attention.appended_key",
            f"attention.{key}",
            lambda appended, own: appended is not None and own is not None,
            "an appended key is at no distance from a query (E-44)",
        )
        for key in ("position_bias", "window")
    ),
    Contradiction(
        "attention.window.left",
        "attention.window.right",
        lambda left, right: (left, right) == (0, 0),
        "a query that sees itself alone attends to nothing (E-26)",
    ),
    Contradiction(
        "embedding.positions",
        "embedding.position_table",
        lambda positions, table: (positions == "learned") != (table is not None),
        "learned positions have a table, and no others do (E-37)",
    ),
    Contradiction(
        "embedding.position_table.first",
        "embedding.position_table.rows",
        lambda first, rows: first is not None and first >= rows,
        "the table has a row for position 0 (E-37)",
    ),
    Contradiction(
        "embedding.scale",
        "embedding.vocabulary",
        lambda scale, vocabulary: scale == "sqrt_d_model" and vocabulary is None,
        "there are no rows of tokens to multiply (E-35)",
    ),
    Contradiction(
        "embedding",
        "embedding.vocabulary",
        lambda own, vocabulary: (
            own is not None
            and vocabulary is None
            and own.positions == "none"
            and own.token_types is None
            and not own.norm
        ),
        "nothing is added to x, and x is not normed: there is no embedding (E-39)",
    ),
    Contradiction(
        "stack.global_layers",
        "stack.layers",
        lambda those, layers: those is not None and those.count(layers) in (0, layers),
        "some layers are global, and some are not (E-33)",
    ),
    Contradiction(
        "stack.global_layers",
        "attention.window",
        lambda those, window: those is not None and those.theta is None and window is None,
        "without a window and a theta of their own, layers that are global are as the others (E-33)",
    ),
    Contradiction(
        "stack.global_layers.theta",
        "attention.rope",
        lambda theta, rope: theta is not None and rope is None,
        "the layers rotate nothing (E-22)",
    ),
    Contradiction(
        "stack.shared_position_bias",
        "attention.position_bias",
        lambda shared, bias: shared and (bias is None or bias.distances == "linear"),
        "there is no table to share (E-23)",
    ),
    *(
        Contradiction(
            "part",
            f"attention.{key}",
            lambda part, chosen: part == "attention" and chosen is not None,
            "a memory has no positions that x has (E-17)",
        )
        for key in ("rope", "position_bias", "window")
    ),
    *(
        Contradiction(
            "part",
            key,
            lambda part, chosen: part == "attention" and chosen not in ((), 1.0, None),
            "attention alone has no residual sum (E-17)",
        )
        for key in ("layer_scale", "residual_scale", "parallel")
    ),
    Contradiction(
        "norm.shift",
        "norm.kind",
        lambda shift, kind: not shift and kind == "rms_norm",
        "an RMSNorm has no shift that could be left out (E-9)",
    ),
    Contradiction(
        "norm.first",
        "norm.placement",
        lambda first, placement: not first and placement in ("post", "res_post"),
        "no norm stands before the first sub-layer (E-3)",
    ),
    Contradiction(
        "parallel",
        "norm.placement",
        lambda parallel, placement: parallel is not None and placement != "pre",
        "sub-layers that both read x have their norms before them (E-41)",
    ),
    Contradiction(
        "parallel",
        "norm.first",
        lambda parallel, first: parallel is not None and not first,
        "sub-layers that both read x have their norms before them (E-41)",
    ),
    Contradiction(
        "feed_forward.gate_bias",
        "feed_forward.gated",
        lambda bias, gated: bias is not None and not gated,
        "it has no gate (E-19)",
    ),
)
"""The rows that every layer keeps, wherever it comes from."""


def contradictions(model: BaseModel, table: Iterable[Contradiction]) -> Iterator[str]:
    """A sentence for each row of the table that holds: both keys, their values and the reason."""
    for row in table:
        first, second = (_value(model, key) for key in (row.first, row.second))
        if row.holds(first, second) and not (row.unless and _value(model, row.unless)):
            values = f"{row.first} = {_written(first)} contradicts {row.second} = {_written(second)}"
            yield f"{values}: {row.reason}"


def _value(model: BaseModel, key: str) -> Any:
    """The value of a key; None inside of what is null."""
    return reduce(lambda found, name: None if found is None else getattr(found, name), key.split("."), model)


def _written(value: object) -> str:
    """A value as YAML writes it in one line."""
    if isinstance(value, BaseModel):
        return f"{{{', '.join(f'{key}: {_written(inner)}' for key, inner in value.model_dump().items())}}}"
    return value if isinstance(value, str) else json.dumps(value)
