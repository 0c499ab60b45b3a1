"""What a file says of its layers together: which attend without a window, and whose table of positions they share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from encoder_conformance.impls.bases.onnx_model.contract import finish
from encoder_conformance.impls.bases.onnx_model.cut import deployed, padded
from encoder_conformance.impls.onnx_direct.adapter import OnnxDirect
from encoder_conformance.oracle.layer_differences import differences
from encoder_conformance.readers.onnx_file.inspection import Inspection, inspect
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.layer import GlobalLayers, Layer
from encoder_conformance.spec.load import published_layers


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
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return inspect(path, None)


def layer_of(seen: Inspection) -> Layer:
    assert seen.findings.errors() == []
    assert seen.inferred is not None
    assert seen.inferred.layer is not None
    assert {fact.key: fact.value for fact in seen.inferred.facts}["proved"]
    return seen.inferred.layer


THOSE = {"first": 0, "every": 2}


@pytest.mark.parametrize(
    "layer",
    [
        stack("t5", 2, shared_position_bias=True),
        stack("mpnet", 2),
        stack("modernbert", 3, global_layers=GlobalLayers(**THOSE, theta=160000.0)),
        stack("modernbert", 2, global_layers=GlobalLayers(first=1, every=3, theta=None)),
        stack("gemma3", 2),
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
