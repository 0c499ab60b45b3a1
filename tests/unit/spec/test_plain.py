"""A key that is added at its plain choice changes nothing that is written of a layer or a situation (L-6)."""

from dataclasses import replace
from typing import Literal

import pytest
from pydantic import PositiveInt

from encoder_conformance.oracle.golden.store import case_digest, read_golden_manifest
from encoder_conformance.oracle.layer_differences import differences
from encoder_conformance.protocol.messages import Build
from encoder_conformance.spec.layer import Attention, Layer
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.plain import plain, whole

SPECIFICATION = load()
DIGESTS = {name: entry.case_sha256 for name, entry in read_golden_manifest().cases.items()}


class LaterAttention(Attention):
    kv_heads: PositiveInt | None = plain(None, "the number of heads of keys and values; null for num_heads")


class LaterLayer(Layer):
    """The layer language with two keys more."""

    attention: LaterAttention
    positions_of_keys: Literal["none", "rotated"] = plain("none", "whether queries and keys are rotated")


class LaterBuild(Build):
    layer: LaterLayer


def later(layer: Layer, **keys: object) -> LaterLayer:
    return LaterLayer.model_validate({**layer.model_dump(), **keys})


@pytest.mark.parametrize("name", SPECIFICATION.layers)
def test_an_adapter_is_told_the_same_bytes(name: str) -> None:
    layer = SPECIFICATION.layers[name]
    assert later(layer).model_dump_json() == layer.model_dump_json()
    told = (Build(layer=layer, dtype="float32"), LaterBuild(layer=later(layer), dtype="float32"))
    assert told[0].model_dump_json() == told[1].model_dump_json()


def test_every_golden_keeps_its_digest() -> None:
    for name, case in SPECIFICATION.with_golden.items():
        assert case_digest(replace(case, layer=later(case.layer)), constants()) == DIGESTS[name], name


def test_at_another_choice_the_key_is_written_and_changes_the_digest() -> None:
    case = SPECIFICATION.cases["pre-gelu/no-mask"]
    layers = (
        later(case.layer, positions_of_keys="rotated"),
        later(case.layer, attention={**case.layer.attention.model_dump(), "kv_heads": 1}),
    )
    assert layers[0].model_dump()["positions_of_keys"] == "rotated"
    assert layers[1].model_dump()["attention"]["kv_heads"] == 1
    digests = {case_digest(replace(case, layer=layer), constants()) for layer in layers}
    assert len(digests - {DIGESTS[case.id]}) == 2


def test_the_whole_of_a_layer_has_its_plain_choices_too() -> None:
    shown = whole(later(SPECIFICATION.layers["pre-gelu"]))
    assert shown["positions_of_keys"] == "none"
    assert shown["attention"]["kv_heads"] is None


def test_a_difference_is_seen_whichever_side_is_plain() -> None:
    of_heads, rotated = (
        later(SPECIFICATION.layers["pre-gelu"]),
        later(SPECIFICATION.layers["pre-gelu"], positions_of_keys="rotated"),
    )
    assert [*differences(rotated, of_heads)] == [("positions_of_keys", "none", "rotated")]
    assert [*differences(of_heads, rotated)] == [("positions_of_keys", "rotated", "none")]


def test_a_situation_without_a_memory_says_nothing_of_it() -> None:
    said = {name for name, each in SPECIFICATION.situations.items() if "memory" in each.model_dump()}
    assert said == {name for name, each in SPECIFICATION.situations.items() if each.memory is not None}
