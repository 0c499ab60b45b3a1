"""Each linear map has a bias of its own, or none: by the key of its like, or by its own (L-3)."""

import json
from typing import Any

import numpy as np
import pytest

from encoder_conformance.implementation.manifest import find_implementation
from encoder_conformance.oracle.forms import stage_equations
from encoder_conformance.oracle.layer_differences import differences
from encoder_conformance.protocol.messages import Build
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.parameters import parameters_of
from encoder_conformance.spec.plan import OWN_BIAS, plan, with_attributes
from encoder_conformance.spec.published import published, unusual

LAYERS = load().layers
WHISPER = {"attention": {"key_bias": False}}
ALONE = [{key.partition(".")[0]: {key.partition(".")[2]: False}} for key in OWN_BIAS]


GATED = {"feed_forward": {"gated": True}}


def changed(name: str, *changes: dict[str, Any]) -> Layer:
    """A layer of the specification with other values at these keys."""
    keys = LAYERS[name].model_dump(mode="json")
    for part, own in (item for each in changes for item in each.items()):
        keys[part] = {**keys[part], **own}
    return Layer.model_validate_json(json.dumps(keys))


def names(layer: Layer) -> list[str]:
    return [parameter.name for parameter in parameters_of(layer)]


@pytest.mark.parametrize("changes", ALONE, ids=OWN_BIAS)
def test_a_map_without_its_bias_is_the_only_thing_that_changes(changes: dict[str, Any]) -> None:
    right, layer = changed("pre-gelu", GATED), changed("pre-gelu", GATED, changes)
    [lost] = layer.lacks_bias
    assert [name for name in names(right) if name not in names(layer)] == [f"{lost}.bias"]
    assert not layer.has_bias(lost)
    before, after = stage_equations(right), stage_equations(layer)
    [stage] = [stage for stage in before if before[stage].form != after[stage].form]
    assert f"{lost}.bias" in before[stage].names
    assert f"{lost}.bias" not in after[stage].names
    assert layer.lacking(()) == right
    assert right.lacking([lost]) == layer


@pytest.mark.parametrize("changes", [{}, *ALONE], ids=["none", *OWN_BIAS])
def test_the_plan_of_what_an_adapter_is_given_is_the_layer_s(changes: dict[str, Any]) -> None:
    layer = changed("post-gelu", GATED, changes)
    told = json.loads(Build(layer=layer, dtype="float32").model_dump_json())["layer"]
    assert plan(with_attributes(told)) == plan(layer)


def test_several_of_a_kind_and_every_layer_of_a_stack() -> None:
    layer = changed("stack-pre-gelu", {"attention": {"query_bias": False, "key_bias": False}})
    assert layer.lacks_bias == ("attention.query", "attention.key")
    biases = [name for name in names(layer) if name.endswith(("query.bias", "key.bias", "value.bias"))]
    assert biases == [f"layers.{number}.attention.value.bias" for number in range(layer.stack.layers)]


def test_only_who_says_so_is_asked() -> None:
    case = Case(changed("pre-gelu", WHISPER), load().situations["no-mask"])
    assert case.own_level == "recommended"
    asked, unasked = (find_implementation(name)[1] for name in ("pytorch", "equinox_mha"))
    assert asked.opt_out(case, "float64", "output") is None
    reason = unasked.opt_out(case, "float64", "output")
    assert reason is not None
    assert reason.text == "biases is not among its capabilities"
    assert LAYERS["pre-gelu"].additions == ()


def test_a_difference_says_what_each_side_has() -> None:
    right, layer = LAYERS["pre-gelu"], changed("pre-gelu", WHISPER)
    assert [*differences(layer, right)] == [("attention.key_bias", True, False)]
    assert [*differences(right, layer)] == [("attention.key_bias", False, True)]


def test_keys_without_a_bias_are_whisper_s_and_values_without_are_nobody_s() -> None:
    layer = changed("pre-gelu-512", WHISPER)
    assert unusual(layer) == ()
    assert [each.encoder for each in published() if not each.differences(layer)] == ["whisper", "qwen2_audio"]
    assert unusual(LAYERS["pre-gelu-512"]) == ()
    [found] = unusual(changed("pre-gelu-512", {"attention": {"value_bias": False}}))
    said = "with attention.value_bias false and attention.qkv_bias true, which no published encoder known here has; "
    assert f"{said}usual: attention.value_bias true" in str(found)


def test_gradients_of_such_a_layer_are_of_the_parameters_that_it_has() -> None:
    case = Case(changed("pre-gelu", WHISPER), load().situations["no-mask"])
    assert "attention.key.bias" not in case.expected_shapes("gradients")
    assert "attention.query.bias" in case.expected_shapes("gradients")
    assert np.all([np.any(value) for value in case.parameters().values()])
