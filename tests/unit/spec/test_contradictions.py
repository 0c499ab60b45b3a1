"""Keys that contradict each other are refused with both keys, their values and the reason (L-5)."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from encoder_conformance.spec.contradictions import CONTRADICTIONS
from encoder_conformance.spec.families import UNFIT_FAMILIES
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load

LAYERS = load().layers
TOKENS = {"vocabulary": 9, "positions": "none"}
EXAMPLES: dict[tuple[str, str], tuple[str, dict[str, Any], str]] = {
    ("attention.num_heads", "d_model"): (
        "pre-gelu",
        {"attention": {"num_heads": 5}},
        "attention.num_heads = 5 contradicts d_model = 24: the heads share the features evenly (L-1)",
    ),
    ("attention.masked_score", "attention.fully_masked_row"): (
        "pre-gelu",
        {"attention": {"masked_score": -1e20}},
        "attention.masked_score = -1e+20 contradicts attention.fully_masked_row = unspecified: "
        "a query whose scores are all the same number has uniform weights (M-6)",
    ),
    ("part", "stack.layers"): (
        "cross-attention",
        {"stack": {"layers": 2}},
        "part = attention contradicts stack.layers = 2: attention alone is not stacked (E-17)",
    ),
    ("part", "stack.final_norm"): (
        "cross-attention",
        {"stack": {"final_norm": True}},
        "part = attention contradicts stack.final_norm = true: attention alone has no norm (E-17)",
    ),
    ("part", "embedding"): (
        "cross-attention",
        {"embedding": TOKENS},
        "part = attention contradicts embedding = {vocabulary: 9, positions: none}: "
        "attention alone takes x and a memory, and no token ids (E-17)",
    ),
    ("dropout.embedded", "embedding"): (
        "pre-gelu",
        {"dropout": {"embedded": 0.1}},
        "dropout.embedded = 0.1 contradicts embedding = null: there are no embedded tokens to drop (A-1)",
    ),
    **{
        (f"attention.{name}_bias", "attention.qkv_bias"): (
            "pre-gelu",
            {"attention": {f"{name}_bias": True}},
            f"attention.{name}_bias = true contradicts attention.qkv_bias = true: qkv_bias is true where any of its "
            "maps has a bias, and a map's own key says only that it has none (L-3)",
        )
        for name in ("query", "key", "value")
    },
    **{
        (f"feed_forward.{name}_bias", "feed_forward.bias"): (
            "pre-gelu",
            {"feed_forward": {"gated": name == "gate", "bias": False, f"{name}_bias": False}},
            f"feed_forward.{name}_bias = false contradicts feed_forward.bias = false: bias is true where any of its "
            "maps has a bias, and a map's own key says only that it has none (L-3)",
        )
        for name in ("gate", "hidden", "output")
    },
    ("attention.qkv_bias", "attention"): (
        "pre-gelu",
        {"attention": {"query_bias": False, "key_bias": False, "value_bias": False}},
        "attention.qkv_bias = true contradicts attention = {num_heads: 3, projections: full, qkv_bias: true, "
        "query_bias: false, key_bias: false, value_bias: false, output_bias: true, scale: head_dim, masked_score: "
        "minus_infinity, fully_masked_row: unspecified}: where none of the three has a bias, qkv_bias is false (L-3)",
    ),
    ("feed_forward.hidden_bias", "feed_forward.output_bias"): (
        "pre-gelu",
        {"feed_forward": {"hidden_bias": False, "output_bias": False}},
        "feed_forward.hidden_bias = false contradicts feed_forward.output_bias = false: "
        "where neither map has a bias, bias is false (L-3)",
    ),
    ("feed_forward.gated", "feed_forward"): (
        "pre-rope-gated",
        {"feed_forward": {"bias": True, "gate_bias": False, "hidden_bias": False, "output_bias": False}},
        "feed_forward.gated = true contradicts feed_forward = {d_ff: 20, activation: silu, gated: true, bias: true, "
        "gate_bias: false, hidden_bias: false, output_bias: false}: where none of the three has a bias, bias is false "
        "(L-3)",
    ),
    ("attention.head_dim", "attention.projections"): (
        "pre-gelu-shared-heads",
        {"attention": {"head_dim": 5, "scale": "head_dim"}},
        "attention.head_dim = 5 contradicts attention.projections = shared_by_heads: "
        "a map that the heads share is of each head's own slice of d_model (E-12)",
    ),
    ("attention.head_dim", "attention.scale"): (
        "pre-gelu",
        {"attention": {"head_dim": 5, "scale": "d_model"}},
        "attention.head_dim = 5 contradicts attention.scale = d_model: "
        "where a head's size is its own, d_model says nothing of scores; scale may be a number (E-20)",
    ),
    ("attention.kv_heads", "attention.num_heads"): (
        "pre-gelu",
        {"attention": {"kv_heads": 2}},
        "attention.kv_heads = 2 contradicts attention.num_heads = 3: "
        "each head of keys serves as many heads of queries (E-28)",
    ),
    ("attention.kv_heads", "attention.projections"): (
        "pre-gelu-shared-heads",
        {"attention": {"kv_heads": 1}},
        "attention.kv_heads = 1 contradicts attention.projections = shared_by_heads: "
        "heads that share their maps are as many for keys as for queries (E-12)",
    ),
    ("attention.qk_norm.kind", "attention.qk_norm.shift"): (
        "pre-gelu",
        {"attention": {"qk_norm": {"kind": "rms_norm", "over": "head", "shift": True}}},
        "attention.qk_norm.kind = rms_norm contradicts attention.qk_norm.shift = true: an RMSNorm has no shift (E-9)",
    ),
    ("attention.rope", "head_dim"): (
        "pre-gelu",
        {"attention": {"rope": {"theta": 100.0, "pairing": "halves", "rotated": 7}}},
        "attention.rope = {theta: 100.0, pairing: halves, rotated: 7} contradicts head_dim = 8: "
        "features are rotated by pairs, those of one head (E-22)",
    ),
    ("attention.position_bias.max_distance", "attention.position_bias.buckets"): (
        "pre-gelu",
        {"attention": {"position_bias": {"buckets": 8, "max_distance": 2}}},
        "attention.position_bias.max_distance = 2 contradicts attention.position_bias.buckets = 8: "
        "the distances below buckets / 4 have a bucket each, and some are beyond (E-23)",
    ),
    ("attention.position_bias.buckets", "attention.position_bias.distances"): (
        "pre-gelu",
        {"attention": {"position_bias": {"buckets": 7, "max_distance": 3}}},
        "attention.position_bias.buckets = 7 contradicts attention.position_bias.distances = logarithmic: "
        "half of the buckets, two or more, are for keys after the query (E-23)",
    ),
    ("attention.position_bias.distances", "attention.position_bias"): (
        "pre-gelu",
        {"attention": {"position_bias": {"buckets": 8, "max_distance": 4, "distances": "clipped"}}},
        "attention.position_bias.distances = clipped contradicts attention.position_bias = "
        "{buckets: 8, max_distance: 4, distances: clipped}: "
        "each distance up to max_distance has a bucket, 2 · max_distance + 1 in all (E-42)",
    ),
    ("attention.position_bias.max_distance", "attention.position_bias"): (
        "pre-gelu",
        {"attention": {"position_bias": {"buckets": 8}}},
        "attention.position_bias.max_distance = null contradicts attention.position_bias = {buckets: 8}: "
        "buckets end at a distance, and linear distances nowhere (E-23, E-43)",
    ),
    ("attention.position_bias.buckets", "attention.position_bias"): (
        "pre-gelu",
        {"attention": {"position_bias": {"buckets": 8, "distances": "linear"}}},
        "attention.position_bias.buckets = 8 contradicts attention.position_bias = {buckets: 8, distances: linear}: "
        "linear distances have no buckets (E-43)",
    ),
    ("attention.position_bias.slopes", "attention.position_bias.distances"): (
        "pre-gelu",
        {"attention": {"position_bias": {"buckets": 8, "max_distance": 24, "slopes": "interpolated"}}},
        "attention.position_bias.slopes = interpolated contradicts attention.position_bias.distances = logarithmic: "
        "slopes are of linear distances (E-43)",
    ),
    ("attention.appended_key", "attention.position_bias"): (
        "pre-appended-key",
        {"attention": {"position_bias": {"distances": "linear"}}},
        "attention.appended_key = learned contradicts attention.position_bias = {distances: linear}: "
        "an appended key is at no distance from a query (E-44)",
    ),
    ("attention.appended_key", "attention.window"): (
        "pre-appended-key",
        {"attention": {"window": {"left": 1, "right": 1}}},
        "attention.appended_key = learned contradicts attention.window = {left: 1, right: 1}: "
        "an appended key is at no distance from a query (E-44)",
    ),
    ("attention.window.left", "attention.window.right"): (
        "pre-gelu",
        {"attention": {"window": {"left": 0, "right": 0}}},
        "attention.window.left = 0 contradicts attention.window.right = 0: "
        "a query that sees itself alone attends to nothing (E-26)",
    ),
    ("embedding.positions", "embedding.position_table"): (
        "encoder-pre-gelu",
        {"embedding": {"positions": "learned"}},
        "embedding.positions = learned contradicts embedding.position_table = null: "
        "learned positions have a table, and no others do (E-37)",
    ),
    ("embedding.position_table.first", "embedding.position_table.rows"): (
        "encoder-patches",
        {"embedding": {"position_table": {"rows": 2, "first": 2, "counted": "all"}}},
        "embedding.position_table.first = 2 contradicts embedding.position_table.rows = 2: "
        "the table has a row for position 0 (E-37)",
    ),
    ("embedding.scale", "embedding.vocabulary"): (
        "encoder-patches",
        {"embedding": {"scale": "sqrt_d_model"}},
        "embedding.scale = sqrt_d_model contradicts embedding.vocabulary = null: "
        "there are no rows of tokens to multiply (E-35)",
    ),
    ("embedding", "embedding.vocabulary"): (
        "encoder-pre-gelu",
        {"embedding": {"vocabulary": None, "positions": "none"}},
        "embedding = {vocabulary: null, positions: none} contradicts embedding.vocabulary = null: "
        "nothing is added to x, and x is not normed: there is no embedding (E-39)",
    ),
    ("stack.global_layers", "stack.layers"): (
        "encoder-alternating",
        {"stack": {"layers": 2, "global_layers": {"first": 2, "every": 1, "theta": None}}},
        "stack.global_layers = {first: 2, every: 1, theta: null} contradicts stack.layers = 2: "
        "some layers are global, and some are not (E-33)",
    ),
    ("stack.global_layers", "attention.window"): (
        "encoder-scaled",
        {"attention": {"window": None}},
        "stack.global_layers = {first: 1, every: 2, theta: null} contradicts attention.window = null: "
        "without a window and a theta of their own, layers that are global are as the others (E-33)",
    ),
    ("stack.global_layers.theta", "attention.rope"): (
        "encoder-alternating",
        {"attention": {"rope": None}},
        "stack.global_layers.theta = 160000.0 contradicts attention.rope = null: the layers rotate nothing (E-22)",
    ),
    ("stack.shared_position_bias", "attention.position_bias"): (
        "encoder-shared-bias",
        {"attention": {"position_bias": None}},
        "stack.shared_position_bias = true contradicts attention.position_bias = null: "
        "there is no table to share (E-23)",
    ),
    **{
        ("part", f"attention.{key}"): (
            "cross-attention",
            {"attention": {key: chosen}},
            f"part = attention contradicts attention.{key} = {written}: a memory has no positions that x has (E-17)",
        )
        for key, chosen, written in (
            (
                "rope",
                {"theta": 100.0, "pairing": "halves", "rotated": 2},
                "{theta: 100.0, pairing: halves, rotated: 2}",
            ),
            ("position_bias", {"buckets": 8, "max_distance": 9}, "{buckets: 8, max_distance: 9}"),
            ("window", {"left": 1, "right": 2}, "{left: 1, right: 2}"),
        )
    },
    ("part", "layer_scale"): (
        "cross-attention",
        {"layer_scale": ["attention"]},
        'part = attention contradicts layer_scale = ["attention"]: attention alone has no residual sum (E-17)',
    ),
    ("part", "residual_scale"): (
        "cross-attention",
        {"residual_scale": 0.5},
        "part = attention contradicts residual_scale = 0.5: attention alone has no residual sum (E-17)",
    ),
    ("part", "parallel"): (
        "cross-attention",
        {"parallel": "one_norm"},
        "part = attention contradicts parallel = one_norm: attention alone has no residual sum (E-17)",
    ),
    ("norm.shift", "norm.kind"): (
        "pre-rms-silu",
        {"norm": {"shift": False}},
        "norm.shift = false contradicts norm.kind = rms_norm: an RMSNorm has no shift that could be left out (E-9)",
    ),
    ("norm.first", "norm.placement"): (
        "post-gelu",
        {"norm": {"first": False}},
        "norm.first = false contradicts norm.placement = post: no norm stands before the first sub-layer (E-3)",
    ),
    ("parallel", "norm.placement"): (
        "post-gelu",
        {"parallel": "two_norms"},
        "parallel = two_norms contradicts norm.placement = post: "
        "sub-layers that both read x have their norms before them (E-41)",
    ),
    ("parallel", "norm.first"): (
        "pre-gelu",
        {"parallel": "one_norm", "norm": {"first": False}},
        "parallel = one_norm contradicts norm.first = false: "
        "sub-layers that both read x have their norms before them (E-41)",
    ),
    ("feed_forward.gate_bias", "feed_forward.gated"): (
        "pre-gelu",
        {"feed_forward": {"gate_bias": False}},
        "feed_forward.gate_bias = false contradicts feed_forward.gated = false: it has no gate (E-19)",
    ),
}
FAMILIES: dict[tuple[str, str], tuple[str, dict[str, Any], str]] = {
    ("family", "part"): (
        "cross-attention",
        {"family": "small"},
        "family = small contradicts part = attention: attention alone has the family attention, and nothing else has",
    ),
    ("family", "embedding"): (
        "embedding-post-relu",
        {"family": "small"},
        "family = small contradicts embedding = {vocabulary: 37, positions: none}: "
        "what has an embedding has the family encoders or published_encoder or token_dropout or whole_encoders, "
        "and nothing else has",
    ),
    ("family", "stack"): (
        "pre-gelu",
        {"stack": {"layers": 6}},
        "family = small contradicts stack = {layers: 6, final_norm: false}: "
        "a stack that takes x has the family stacks or deep_stacks, and nothing else has",
    ),
}


def changed(name: str, changes: dict[str, Any]) -> Layer:
    """A layer of the specification with other values at these keys."""
    keys = LAYERS[name].model_dump(mode="json")
    for key, value in changes.items():
        keys[key] = {**keys[key], **value} if isinstance(keys.get(key), dict) and isinstance(value, dict) else value
    return Layer.model_validate_json(json.dumps(keys))


@pytest.mark.parametrize("keys", EXAMPLES, ids=" and ".join)
def test_two_keys_are_refused_with_their_values_and_the_reason(keys: tuple[str, str]) -> None:
    name, changes, sentence = EXAMPLES[keys]
    with pytest.raises(ValidationError) as caught:
        changed(name, changes)
    [error] = caught.value.errors()
    assert error["msg"] == f"Value error, {sentence}"


def test_all_contradictions_are_told_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        changed("pre-gelu", {"attention": {"num_heads": 5, "masked_score": -1e20}})
    for row in CONTRADICTIONS[:2]:
        assert f"{row.second} = " in str(caught.value)


def test_a_sub_layer_has_one_layer_scale() -> None:
    with pytest.raises(ValidationError, match="attention, attention: each sub-layer is named once"):
        changed("pre-gelu", {"layer_scale": ["attention", "attention"]})


@pytest.mark.parametrize("keys", FAMILIES, ids=" and ".join)
def test_a_family_of_other_layers_is_named_with_what_contradicts_it(keys: tuple[str, str]) -> None:
    name, changes, sentence = FAMILIES[keys]
    assert changed(name, changes).unfit_family == sentence


@pytest.mark.parametrize(
    ("name", "family"),
    [("pre-gelu", "stacks"), ("pre-gelu", "encoders"), ("pre-gelu", "attention"), ("stack-pre-gelu", "encoders"),
     ("encoder-pre-gelu", "stacks")],
)  # fmt: skip
def test_a_family_is_unfit_the_other_way_round_too(name: str, family: str) -> None:
    assert changed(name, {"family": family}).unfit_family.startswith(f"family = {family} contradicts ")
    assert LAYERS[name].unfit_family == ""


def test_every_row_of_the_table_has_its_example() -> None:
    assert [(row.first, row.second) for row in CONTRADICTIONS] == [*EXAMPLES]
    assert [(row.first, row.second) for row in UNFIT_FAMILIES] == [*FAMILIES]
