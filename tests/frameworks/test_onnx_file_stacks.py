"""What a file says of its layers together: which attend without a window, and whose table of positions they share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from products import of_a_release
from read_files import layer_of, read

from encoder_conformance.impls.bases.onnx_model.contract import finish
from encoder_conformance.impls.bases.onnx_model.cut import deployed, padded
from encoder_conformance.impls.onnx_direct.adapter import OnnxDirect
from encoder_conformance.oracle.inputs import LayerInputs
from encoder_conformance.oracle.layer_differences import differences
from encoder_conformance.oracle.measured import sampled_conditions
from encoder_conformance.readers.onnx_file.inspection import Inspection
from encoder_conformance.readers.onnx_file.layer.verification import exact_stages, judge_whole_tensors, verify
from encoder_conformance.spec.case import Case, layer_parameters
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import GlobalLayers, Layer
from encoder_conformance.spec.load import load, published_layers


def stack(name: str, layers: int, **chosen: Any) -> Layer:
    layer = published_layers()[name]
    return layer.model_copy(update={"stack": layer.stack.model_copy(update={"layers": layers, **chosen})})


def written(layer: Layer, folder: Path, edit: Callable[[onnx.ModelProto], None] | None = None) -> Inspection:
    """The layer in ONNX's operators, with a mask of padding, and what is read off it."""
    described = layer.model_dump(mode="json")
    held = {name: value.astype(np.float32) for name, value in layer_parameters(layer, {}).items()}
    model = OnnxDirect().export(described, held, "float32", 20, biased=False)
    model = padded(deployed(finish(model, described, held, exporter="onnx_direct", opset=20, versions={})))
    if edit is not None:
        edit(model)
    return read(model, folder)


THOSE = {"first": 0, "every": 2}


@pytest.mark.parametrize(
    "layer",
    [
        of_a_release(stack("t5", 2, shared_position_bias=True)),
        stack("mpnet", 2),
        of_a_release(stack("modernbert", 3, global_layers=GlobalLayers(**THOSE, theta=160000.0))),
        stack("modernbert", 2, global_layers=GlobalLayers(first=1, every=3, theta=None)),
        of_a_release(stack("gemma3", 2)),
    ],
    ids=("one table", "two tables", "every other", "the last", "windows"),
)
def test_a_stack_is_read_as_it_was_written(layer: Layer, tmp_path: Path) -> None:
    seen = written(layer, tmp_path)
    assert list(differences(layer_of(seen), layer)) == []
    assert seen.inferred is not None
    assert seen.inferred.parameters.keys() == layer_parameters(layer, {}).keys()


def test_layers_without_a_window_that_come_unevenly_are_an_error(tmp_path: Path) -> None:
    """Of 0, 2 and 3 there is no first one and step."""

    def without_window(model: onnx.ModelProto) -> None:
        node = next(node for node in model.graph.node if node.output[0] == "layers.3.seen")
        node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))

    layer = stack("modernbert", 4, global_layers=GlobalLayers(**THOSE, theta=None))
    seen = written(layer, tmp_path, without_window)
    [error] = seen.findings.errors()
    assert "the layers of the stack differ: attention.window" in error.message


def test_a_window_one_wider_is_another_layer(tmp_path: Path) -> None:
    def wider(model: onnx.ModelProto) -> None:
        held = next(tensor for tensor in model.graph.initializer if tensor.name == "keys_after")
        held.CopyFrom(onnx.numpy_helper.from_array(np.array(5, np.int64), "keys_after"))

    layer = published_layers()["modernbert"]
    read = layer_of(written(layer, tmp_path, wider))
    assert [(key, own) for key, _, own in differences(read, layer)] == [("attention.window.right", 5)]


def test_few_runs_do_not_accuse() -> None:
    """By the σ of 8 runs one number is out of line, and by that of 64 it is not: σ is no smaller for that."""
    layer, format = published_layers()["bert"], FORMATS["float64"]
    case = Case(layer, load().situations["no-mask"])
    inputs = LayerInputs(case.x(), case.parameters(), None)
    exact = exact_stages(layer, inputs)
    due = {"output": exact["output"]}

    def sigma(runs: int, at: tuple[int, ...]) -> float:
        """Of this element, by so many runs."""
        far = {"output": due["output"].copy()}
        far["output"][at] += 1.0
        conditions = sampled_conditions(layer, inputs, exact, runs)
        found = judge_whole_tensors(due, conditions, far, format)["output"].sigma
        assert found is not None
        return found

    few, many = (sampled_conditions(layer, inputs, exact, runs)["output"] for runs in (8, 64))
    where = np.unravel_index(int((many / few).argmax()), few.shape)
    at = tuple(int(place) for place in where)
    assert 1.5 * sigma(8, at) < sigma(64, at)
    for times, conforms in ((14, True), (25, False), (1e6, False)):
        value = due["output"].copy()
        value[at] += times * sigma(8, at)
        [verdict] = verify(layer, inputs, {"output": value}, format)
        assert verdict.conforms == conforms, times


def turned_about(model: onnx.ModelProto) -> None:
    """Buckets of query less key: what is after a query counts as before it."""
    node = next(node for node in model.graph.node if node.output[0] == "is_after")
    node.op_type = "Less"


def begun_one_later(model: onnx.ModelProto) -> None:
    """Each bucket of a distance begins one position farther away."""
    held = next(tensor for tensor in model.graph.initializer if tensor.name == "bucket_starts")
    held.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(held) + 1, held.name))


@pytest.mark.parametrize("edit", [turned_about, begun_one_later])
def test_wrong_buckets_that_the_file_computes_are_no_right_ones(
    edit: Callable[[onnx.ModelProto], None], tmp_path: Path
) -> None:
    """They are named, or read as the buckets that they are mistaken for, which a run then does not prove."""
    seen = written(published_layers()["mpnet"], tmp_path, edit)
    if seen.inferred is None:
        [error] = seen.findings.errors()
        assert "numbers of its own are added to the scores" in error.message
    else:
        assert not {fact.key: fact.value for fact in seen.inferred.facts}["proved"]


@pytest.mark.parametrize("name", ["mpnet", "vit"])
def test_a_residual_sum_that_is_lost_in_an_earlier_layer_is_what_is_named(name: str, tmp_path: Path) -> None:
    """The layer behind it reads a linear map, or the norm of one, as the queries and keys of latent attention do."""

    def lost(model: onnx.ModelProto) -> None:
        [_, second, *_] = [node for node in model.graph.node if node.op_type == "Add" and "residual" in node.output[0]]
        made = next(each for each in second.input if "residual" not in each and "norm" not in each)
        second.CopyFrom(helper.make_node("Identity", [made], list(second.output), second.name))

    seen = written(stack(name, 2), tmp_path, lost)
    errors = " ".join(each.message for each in seen.findings.errors())
    assert "residual2 is missing" in errors
    assert "latent" not in errors


def skipping(model: onnx.ModelProto) -> None:
    """The last sum and the norm of it in one node, as ONNX Runtime's optimisers write them: the sum is no value."""
    nodes = list(model.graph.node)
    made = {node.output[0]: node for node in nodes}
    norm = [node for node in nodes if node.op_type == "LayerNormalization"][-1]
    total = norm.input[0]
    while made[total].op_type == "Identity":
        total = made[total].input[0]
    fused = helper.make_node(
        "SkipLayerNormalization",
        [*made[total].input, *norm.input[1:]],
        norm.output,
        domain="com.microsoft",
        epsilon=helper.get_node_attr_value(norm, "epsilon"),
    )
    norm.CopyFrom(fused)
    taken = {name for node in nodes for name in node.input}
    while lone := [node for node in nodes if node.output[0] not in {*taken, "output"}]:
        nodes = [node for node in nodes if node not in lone]
        taken = {name for node in nodes for name in node.input}
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))


def test_a_layer_whose_sum_a_fused_node_keeps_is_not_asked_for(tmp_path: Path, conform: Callable) -> None:
    """The other layer of the stack shows its own."""
    seen = written(stack("vit", 2, final_norm=True), tmp_path, skipping)
    assert seen.inferred is not None
    assert sorted(seen.inferred.stages) == ["final_norm", "layer_0", "output"]
    ended = conform("validate", tmp_path / "model.onnx", "--runtime", "onnxruntime", "--out", tmp_path / "out")
    assert ended.status == 0, ended.stdout + ended.stderr


@pytest.mark.release
def test_no_cause_is_unknown_where_one_layer_is_seen_to_be_another(tmp_path: Path, conform: Callable) -> None:
    def tanh(model: onnx.ModelProto) -> None:
        [*_, last] = [node for node in model.graph.node if node.op_type == "Gelu"]
        [attribute] = last.attribute
        attribute.s = b"tanh"

    written(stack("vit", 2), tmp_path, tanh)
    ended = conform("validate", tmp_path / "model.onnx", "--runtime", "onnxruntime", "--out", tmp_path / "out")
    assert ended.status == 1, ended.stdout + ended.stderr
    assert "the layers of the stack differ: feed_forward.activation" in ended.stdout
    assert "Cause" not in ended.stdout
