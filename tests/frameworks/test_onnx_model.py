"""What every ONNX exporter is built on: parameters found by value, exports kept on disk, models cut, runtimes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.load import load

FUSED = """
<ir_version: 8, opset_import: ["": 17]>
projections (float[batch, 4] x) => (float[batch, 12] all, float[batch, 4] query, float[batch, 4] shifted)
{
  all = MatMul(x, fused)
  query = MatMul(x, turned)
  shifted = Add(query, row)
}
"""


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def fused(parameters: dict[str, np.ndarray]) -> Any:
    """A model that holds three weights side by side, one of them again, transposed, and a bias as a row."""
    from onnx import numpy_helper, parser

    weights = [parameters[f"attention.{name}.weight"] for name in ("query", "key", "value")]
    held = {
        "fused": np.concatenate(weights, axis=1),
        "turned": weights[0].T,
        "row": parameters["attention.query.bias"][None],
    }
    model = parser.parse_model(FUSED)
    for name, value in held.items():
        model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
    return model


def drawn(seed: int) -> dict[str, np.ndarray]:
    weights = [random(4, 4, seed=seed + at) for at in range(3)]
    named = {f"attention.{name}.weight": w for name, w in zip(("query", "key", "value"), weights, strict=True)}
    return {**named, "attention.query.bias": random(4, seed=seed + 3)}


def test_parameters_are_found_by_value_put_and_read_back() -> None:
    from onnx import numpy_helper

    from encoder_conformance.impls.bases.onnx_model.binding import Binding, bind

    model = fused(drawn(0))
    binding = Binding.from_json(bind(model, drawn(0)).to_json())
    assert {len(binding.places[f"attention.{name}.weight"]) for name in ("key", "value")} == {1}
    others = drawn(10)
    binding.put(model, others)
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    expected = {tensor.name: numpy_helper.to_array(tensor) for tensor in fused(others).graph.initializer}
    assert np.array_equal(values["fused"], expected["fused"])
    assert np.array_equal(values["attention.query.weight"], expected["turned"]), "named for what it is"
    assert np.array_equal(values["attention.query.bias"], expected["row"])
    read = binding.read(model)
    assert all(np.array_equal(read[name], value) for name, value in others.items())


def test_a_parameter_that_the_export_has_changed_is_missed_by_name() -> None:
    from encoder_conformance.impls.bases.onnx_model.binding import bind

    with pytest.raises(LookupError, match=r"attention\.key\.weight"):
        bind(fused(drawn(0)), {**drawn(0), "attention.key.weight": random(4, 4, seed=9)})


def test_an_export_is_kept_and_a_torn_or_foreign_file_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from encoder_conformance.impls.bases.onnx_model.store import stored

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model, made = exported("post-relu"), []

    def make() -> Any:
        made.append(1)
        return model

    def asked(layer: str, *, makes: int) -> None:
        found = stored({"layer": layer}, make)
        assert [node.op_type for node in found.graph.node] == [node.op_type for node in model.graph.node]
        assert len(made) == makes

    asked("post-relu", makes=1)
    asked("post-relu", makes=1)
    [file] = tmp_path.rglob("*.onnx")
    file.write_bytes(file.read_bytes()[:-9])
    asked("post-relu", makes=2)
    asked("post-relu", makes=2)
    file.write_bytes(b"no model")
    asked("post-relu", makes=3)
    asked("another", makes=4)


def exported(name: str) -> Any:
    """Of onnx_direct, in float32, with its parameters."""
    from encoder_conformance.impls.bases.onnx_model.contract import finish
    from encoder_conformance.impls.onnx_direct.adapter import OnnxDirect

    layer = load().layers[name]
    parameters = {name: value.astype(np.float32) for name, value in layer_parameters(layer, {}).items()}
    model = OnnxDirect().export(layer.model_dump(mode="json"), parameters, "float32", 20, biased=False)
    return finish(
        model, layer.model_dump(mode="json"), parameters, exporter="onnx_direct", opset=20, versions={"onnx": "1"}
    )


def given(layer: Any, batch: int, sequence: int) -> dict[str, np.ndarray]:
    valid = np.arange(sequence) < np.arange(sequence, sequence - batch, -1)[:, None]
    mask = np.broadcast_to(valid[:, None, None], (batch, layer.attention.num_heads, sequence, sequence))
    x = random(batch, sequence, layer.d_model)
    return {"x": x, "mask": np.ascontiguousarray(mask), "valid": valid}


def test_a_model_says_what_it_is_and_keeps_that_when_it_is_cut() -> None:
    from encoder_conformance.impls.bases.onnx_model.contract import metadata
    from encoder_conformance.impls.bases.onnx_model.cut import deployed, padded

    model = exported("post-relu")
    for each in (model, deployed(model), padded(deployed(model))):
        about = metadata(each)
        assert about["exporter"] == "onnx_direct"
        assert about["opset"] == "20"
        assert json.loads(about["layer"])["layer"] == "post-relu"
        assert json.loads(about["versions"]) == {"onnx": "1"}
        assert each.graph.output[-1].name == "output"


@pytest.mark.parametrize("runtime", ["onnxruntime", "reference", "openvino"])
def test_one_mask_of_padding_says_what_the_two_masks_say(runtime: str) -> None:
    from encoder_conformance.impls.bases.onnx_model import runtimes
    from encoder_conformance.impls.bases.onnx_model.cut import deployed, padded

    layer, model = load().layers["post-relu"], deployed(exported("post-relu"))
    whole = runtimes.open(model.SerializeToString(), runtime)
    short = runtimes.open(padded(model).SerializeToString(), runtime)
    assert short.inputs["mask"] == ("batch", "sequence")
    for sizes in ((1, 1), (3, 5)):
        feeds = given(layer, *sizes)
        output = short.run({"x": feeds["x"], "mask": feeds["valid"]})["output"]
        assert np.allclose(output, whole.run(feeds)["output"], rtol=0, atol=1e-6)
        assert output.shape == feeds["x"].shape


def test_one_mask_of_padding_is_not_written_out_for_every_head_and_query() -> None:
    from encoder_conformance.impls.bases.onnx_model.cut import deployed, padded

    nodes = padded(deployed(exported("post-relu"))).graph.node
    assert any("mask_of_keys" in node.input for node in nodes)
    made = {name for node in nodes for name in node.output}
    assert "mask_of_heads" not in made  # [B, H, S, S]
    assert not any("mask_of_heads" in node.input for node in nodes)


@pytest.mark.parametrize("runtime", ["reference", "openvino"])
def test_what_a_runtime_would_cast_or_broadcast_is_refused(runtime: str) -> None:
    from encoder_conformance.impls.bases.onnx_model import runtimes

    layer, model = load().layers["post-relu"], exported("post-relu")
    session, feeds = runtimes.open(model.SerializeToString(), runtime), given(layer, 2, 3)
    with pytest.raises(TypeError, match="x is float64"):
        session.run({**feeds, "x": feeds["x"].astype(np.float64)})
    with pytest.raises(ValueError, match=r"x is \[2, 3, 1\]"):
        session.run({**feeds, "x": feeds["x"][:, :, :1]})


def test_levels_are_what_onnx_runtime_calls_by_that_name() -> None:
    """A level that did nothing would be a row of the table that says nothing: fused operators tell them apart."""
    import onnx

    from encoder_conformance.impls.bases.onnx_model import runtimes
    from encoder_conformance.impls.bases.onnx_model.cut import deployed

    model = deployed(exported("post-relu")).SerializeToString()
    operators = {}
    for level in runtimes.LEVELS:
        options = runtimes.options(level, 1)
        options.optimized_model_filepath = f"{level}.onnx"
        options.log_severity_level = 3
        runtimes.session(model, options)
        operators[level] = [node.op_type for node in onnx.load(f"{level}.onnx").graph.node]
    assert len(operators["disable"]) > len(operators["basic"]) > len(operators["extended"])
    assert "SkipLayerNormalization" in operators["extended"]


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
