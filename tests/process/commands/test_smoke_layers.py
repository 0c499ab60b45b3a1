"""`conform smoke` on one architecture that is fixed: which layers it is asked for, and what a refusal means."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encoder_conformance.platform.paths import SPECS
from encoder_conformance.spec.load import load


def built(conform: Callable, status: int, *arguments: Path | str) -> tuple[str, dict[str, Any]]:
    """The verdict of a checklist, and its step `build`."""
    ended = conform("smoke", *arguments, "--json")
    assert ended.status == status, ended.stdout + ended.stderr
    found = json.loads(ended.stdout)
    [step] = [step for step in found["steps"] if step["name"] == "build"]
    return found["verdict"], step


FIXED = """
def build(self, layer, parameters, dtype):
    if layer["d_model"] != 14:
        raise ValueError("its d_model is 14")
    return super().build(layer, parameters, dtype)
"""
"""An architecture that is fixed: of the specification's layers it is one alone, or one of the user's own."""


def test_a_fixed_architecture_is_not_called_a_broken_adapter(conform: Callable, fake: Callable) -> None:
    folder = fake("fixed", FIXED)
    verdict, build = built(conform, 1, folder)
    assert verdict == "architecture"
    assert "its d_model is 14" in build["said"]
    advice = "\n".join(build["do"])
    assert "name a layer that it has: conform smoke --layer ID|YAML, or capabilities.layers" in advice
    shown = conform("smoke", folder).stdout
    assert "It refuses the layer that it was asked for" in shown
    assert "The adapter is broken" not in shown


@pytest.mark.release
def test_a_fixed_architecture_is_tried_with_a_layer_that_it_has(conform: Callable, fake: Callable) -> None:
    [name] = [name for name, layer in load().layers.items() if layer.d_model == 14]
    listed = fake("listed", FIXED, stages=f"all\n  layers: [{name}]")
    told = fake("told", FIXED)
    for arguments in ((listed,), (told, "--layer", name)):
        assert name in built(conform, 0, *arguments)[1]["said"]
    ended = conform("run", "--impl", listed, "--case", "*/no-mask", "--dtype", "float32")
    records = [record for record in ended.report["records"] if record["outcome"] != "unsupported"]
    assert {record["case"] for record in records} == {f"{name}/no-mask"}
    assert "layer pre-gelu is not among its capabilities" in ended.messages()


def test_an_encoder_of_token_ids_is_tried_as_that_and_not_by_its_attention_alone(
    conform: Callable, fake: Callable
) -> None:
    opts_out = '[{when: {embedding: false, part: encoder_layer}, reason: "It takes token ids", link: "https://x.org"}]'
    folder = fake("tokens", unsupported=opts_out)
    _, build = built(conform, 0, folder)
    name = build["said"].removesuffix(" in float32")
    assert load().layers[name].embedding
    assert f"{name}/tokens-padding" in load().cases
    steps = {step["name"]: step["said"] for step in json.loads(conform("smoke", folder, "--json").stdout)["steps"]}
    assert steps["refusal"] == f"{name} has no case of it, or its manifest opts out of each"
    assert steps["forms"] == "2 cases in other dtypes, layouts, kinds of masks and modes"


@pytest.mark.release
def test_a_layer_of_the_users_own_is_tried(conform: Callable, fake: Callable, tmp_path: Path) -> None:
    text = (SPECS / "layers" / "pre-gelu.yaml").read_text()
    own = text.replace("layer: pre-gelu", "layer: my-own").replace("d_model: 24", "d_model: 14")
    (tmp_path / "my-own.yaml").write_text(own.replace("num_heads: 3", "num_heads: 2"))
    _, build = built(conform, 0, fake("fixed", FIXED), "--layer", tmp_path / "my-own.yaml")
    assert "my-own in float32" in build["said"]


def test_a_layer_that_nobody_has_is_bad_input(conform: Callable, honest: Path) -> None:
    ended = conform("smoke", honest, "--layer", "pre-gellu")
    assert ended.status == 2
    assert "did you mean pre-gelu" in ended.stderr
