"""Whole models, and what ONNX Runtime's tools make of them: fused or cut, a file is judged as what it computes."""

import importlib.util
import json
import logging
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.transformers import float16

from encoder_conformance.commands.validate.evidence import ExaminedFile, ValidationRequest
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.readers.onnx_file.inspection import Inspection, inspect
from encoder_conformance.subjects.checkpoint import map_checkpoint

NAMES = {
    "attention.query": "query", "attention.key": "key", "attention.value": "value", "attention.output": "dense",
    "feed_forward.hidden": "intermediate", "feed_forward.output": "output", "norm1": "norm1", "norm2": "norm2",
}  # fmt: skip
pytestmark = pytest.mark.xdist_group("whole")  # one export serves all


@pytest.fixture(scope="module")
def made() -> ModuleType:
    logging.disable(logging.WARNING)
    spec = importlib.util.spec_from_file_location("bert_like", Path(__file__).with_name("bert_like.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def plain(made: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.exported(tmp_path_factory.mktemp("whole") / "model.onnx")


@pytest.fixture(scope="module")
def due(made: ModuleType) -> dict[str, Any]:
    """The parameters of both layers, by the specification's names."""
    state = made.state(made.drawn())
    kinds = {"weight": "gain", "bias": "shift"}
    return {
        f"layers.{n}.{spec}.{kinds[kind] if 'norm' in spec else kind}": state[f"layers.{n}.{own}.{kind}"].T
        for n in range(2)
        for spec, own in NAMES.items()
        for kind in ("weight", "bias")
    }


def layer_of(seen: Inspection) -> dict[str, Any]:
    layer = seen.description()["layer"]
    assert layer is not None, seen.findings.found
    return layer


def proved(seen: Inspection) -> bool:
    return next(fact["value"] for fact in seen.description()["facts"] if fact["key"] == "proved")


@pytest.mark.parametrize(
    ("how", "has"),
    [
        pytest.param(None, "Softmax", id="as-exported"),
        pytest.param({}, "Attention", id="attention", marks=pytest.mark.release),
        pytest.param({"heads": True}, "MultiHeadAttention", id="multi-head-attention"),
        pytest.param({"raw": False}, "ReduceSum", id="a-mask-that-is-counted", marks=pytest.mark.release),
    ],
)
def test_a_file_from_ids_to_hidden_states(
    made: ModuleType, plain: Path, due: dict[str, Any], tmp_path: Path, how: dict[str, bool] | None, has: str
) -> None:
    path = plain if how is None else made.fused(plain, tmp_path / "fused.onnx", **how)
    assert has in made.operators(path)
    seen = inspect(path, None)
    assert not seen.findings.errors(), seen.findings.found
    said = [finding.message for finding in seen.findings.found if finding.phase == "interface"]
    assert said[:1] == [
        "the encoder is judged from '/norm/LayerNormalization_output_0', what the embedding over 60 ids, "
        "Gather '/words/Gather' makes of input_ids, token_type_ids, to 'last_hidden_state'; pooler_output left aside"
    ]
    assert said[1].startswith(
        "as a whole, from input_ids, token_type_ids to 'last_hidden_state': the sum of a row of 60 by input_ids, "
        "a row of 2 by token_type_ids, a row of 40 by position, normed: rms 0."
    )
    layer = layer_of(seen)
    assert (layer["stack"]["layers"], layer["attention"]["num_heads"], layer["norm"]["placement"]) == (2, 4, "post")
    held = seen.parameters()
    assert held.keys() == due.keys()
    assert all(np.array_equal(held[name], value) for name, value in due.items())
    assert proved(seen)
    [mask] = [mask for mask in seen.description()["roles"]["masks"] if mask["meaning"]]
    assert (mask["name"], mask["meaning"], mask["counted"]) == ("attention_mask", "attend", has == "ReduceSum")


def of_ids(change: Callable[[onnx.ModelProto], None], plain: Path, path: Path) -> list[tuple[str, str]]:
    """Severity and message of what is said of the whole file, where `change` has edited it."""
    model = onnx.load(plain)
    change(model)
    onnx.save(model, path)
    found = inspect(path, None).findings.found
    return [(f.severity, f.message) for f in found if f.phase == "interface" and "is judged from" not in f.message]


def test_positions_that_are_not_one_after_the_other_are_said(plain: Path, tmp_path: Path) -> None:
    def every_other(model: onnx.ModelProto) -> None:
        at, positions = next(pair for pair in enumerate(model.graph.node) if pair[1].name == "/positions/Gather")
        twice = onnx.helper.make_node("Mul", [positions.input[1], "two"], ["rows"], "twice")
        positions.input[1] = "rows"
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2), "two"))
        model.graph.node.insert(at, twice)

    said = of_ids(every_other, plain, tmp_path / "model.onnx")
    assert [severity for severity, message in said if "which are not one after the other" in message] == ["warning"], (
        said
    )


def test_an_embedding_that_is_off_is_an_error(plain: Path, tmp_path: Path) -> None:
    """Its norm takes what was rounded to float16, which the encoder from there on does not show."""

    def another_norm(model: onnx.ModelProto) -> None:
        at, norm = next(pair for pair in enumerate(model.graph.node) if pair[1].name == "/norm/LayerNormalization")
        cast = onnx.TensorProto
        narrow = onnx.helper.make_node("Cast", [norm.input[0]], ["narrow"], "narrow", to=cast.FLOAT16)
        wide = onnx.helper.make_node("Cast", ["narrow"], ["wide"], "wide", to=cast.FLOAT)
        norm.input[0] = "wide"
        model.graph.node.insert(at, wide)
        model.graph.node.insert(at, narrow)

    said = of_ids(another_norm, plain, tmp_path / "model.onnx")
    assert [severity for severity, message in said if "is not the sum of a row of 60 by input_ids" in message] == [
        "error"
    ]


def test_float16_that_is_out_of_order_is_sorted_and_that_is_said(made: ModuleType, plain: Path, tmp_path: Path) -> None:
    seen = inspect(made.fused(plain, tmp_path / "half.onnx", half=True), None)
    assert not seen.findings.errors(), seen.findings.found
    assert layer_of(seen)["stack"]["layers"] == 2
    assert proved(seen)


def test_attention_of_integers_is_that_of_the_numbers_that_they_stand_for(
    made: ModuleType, plain: Path, tmp_path: Path
) -> None:
    path = made.quantised(made.fused(plain, tmp_path / "fused.onnx"), tmp_path / "model.onnx")
    assert {"QAttention", "MatMulInteger"} <= made.operators(path)
    seen = inspect(path, None)
    assert not seen.findings.errors(), seen.findings.found
    assert layer_of(seen)["stack"]["layers"] == 2
    assert proved(seen)
    described = seen.description()
    assert described["quantised"]
    assert described["parameters"]["layers.0.attention.query.weight"]["stored"] == "int8"


def test_weights_of_4_bits_in_one_operator(made: ModuleType, plain: Path, due: dict[str, Any], tmp_path: Path) -> None:
    path = made.in_4_bits(plain, tmp_path / "model.onnx")
    assert "MatMulNBits" in made.operators(path)
    seen = inspect(path, None)
    assert not seen.findings.errors(), seen.findings.found
    held, name = seen.parameters(), "layers.1.feed_forward.hidden.weight"
    source = seen.description()["parameters"][name]
    assert source["stored"] == "uint4"
    assert 0 < np.abs(held[name] - due[name]).max() <= source["step"]
    assert proved(seen)


def test_a_head_is_left_aside(made: ModuleType, plain: Path, tmp_path: Path) -> None:
    """Only what is made of the hidden states is an output: they are found before it."""
    model = onnx.load(plain)
    del model.graph.output[0]
    onnx.save(model, tmp_path / "model.onnx")
    seen = inspect(tmp_path / "model.onnx", None)
    assert not seen.findings.errors(), seen.findings.found
    assert layer_of(seen)["stack"]["layers"] == 2
    assert any(f.message.endswith("'last_hidden_state'; pooler_output left aside") for f in seen.findings.found)


def test_a_checkpoint_is_mapped_by_values_and_by_names(made: ModuleType, due: dict[str, Any]) -> None:
    state = made.state(made.drawn())
    found = map_checkpoint(state, due)
    assert found.keys() == due.keys()
    assert all(np.array_equal(found[name].value, value) for name, value in due.items())
    one, other = "layers.0.query.weight", "layers.0.key.weight"
    swapped = {**state, one: state[other], other: state[one]}
    found = map_checkpoint(swapped, due)
    assert found["layers.0.attention.query.weight"].name == one, "the name says so, whatever it holds"
    assert np.array_equal(found["layers.0.attention.query.weight"].value, due["layers.0.attention.key.weight"])
    stacked = {name: value for name, value in state.items() if not name.startswith("layers.1.query")}
    assert "layers.1.attention.query.weight" not in map_checkpoint(stacked, due)


def test_token_types_that_no_input_gives_are_no_positions(made: ModuleType, tmp_path: Path) -> None:
    seen = inspect(made.exported(tmp_path / "model.onnx", types=False), None)
    said = [finding.message for finding in seen.findings.found]
    assert any("row 0 of 2" in message for message in said), said
    assert not any("positions take rows" in message for message in said)


def test_positions_that_all_take_one_row_are_said(made: ModuleType, tmp_path: Path) -> None:
    """They look as token types do that no input gives; but then no table is read one row after the other."""
    path = made.exported(tmp_path / "model.onnx", places=False)
    said = [finding.message for finding in inspect(path, None).findings.found if finding.severity == "warning"]
    assert any("positions take rows [0, 0, 0, 0, 0]" in message for message in said), said


def test_an_encoder_cut_out_of_a_fused_model_is_one_that_its_runtime_runs(
    made: ModuleType, plain: Path, tmp_path: Path
) -> None:
    """Attention takes the count of the mask's ones in int32; the embedding that counted them is cut away."""
    seen = inspect(made.fused(plain, tmp_path / "fused.onnx", raw=False), None)
    assert proved(seen)
    assert seen.model is not None
    session = ort.InferenceSession(seen.model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == [port["name"] for port in seen.description()["inputs"]]


def test_an_encoder_cut_out_of_a_halved_model_is_asked_in_what_it_takes(plain: Path, tmp_path: Path) -> None:
    """The whole takes ids and gives float32; the encoder inside takes float16."""
    path = tmp_path / "half.onnx"
    onnx.save(float16.convert_float_to_float16(onnx.load(plain), keep_io_types=True), path)
    description = FileDescription.model_validate_json(json.dumps(inspect(path, None).description()))
    request = ValidationRequest(path, None, None, None, (), {}, None)
    assert description.cut is not None
    assert ExaminedFile(request, description, {}).dtype == "float16"


def test_ids_whose_sizes_are_used_behind_the_embedding_are_no_mask(plain: Path, tmp_path: Path) -> None:
    """As torch.export has it: the sizes of ids are what later reshapes take."""
    model = onnx.load(plain)
    (last,) = (node for node in model.graph.node if "last_hidden_state" in node.output)
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = ["hidden" if name == "last_hidden_state" else name for name in names]
    assert "hidden" in last.output
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "features"))
    model.graph.node.extend(
        [
            onnx.helper.make_node("Shape", ["input_ids"], ["sizes"]),
            onnx.helper.make_node("Concat", ["sizes", "features"], ["whole"], axis=0),
            onnx.helper.make_node("Reshape", ["hidden", "whole"], ["last_hidden_state"]),
        ]
    )
    onnx.save(model, tmp_path / "sized.onnx")
    seen = inspect(tmp_path / "sized.onnx", None)
    assert proved(seen)
    said = [finding.message for finding in seen.findings.found]
    assert not any("sizes alone" in message for message in said)
    assert any("makes of input_ids" in message for message in said)
