"""jax2onnx's exports of the JAX encoder: every stage is an output in its shape, at sizes that were not exported."""

import numpy as np
import pytest

from encoder_conformance.impls.bases.onnx_model import runtimes
from encoder_conformance.impls.bases.onnx_model.contract import finish
from encoder_conformance.impls.onnx_jax.encoder import export
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.load import load
from encoder_conformance.spec.plan import layer_sizes
from encoder_conformance.spec.stages import SHAPES, stages

B, S = 2, 3


@pytest.mark.parametrize(
    ("name", "opset"),
    [("post-relu", 17), ("post-relu", 23), ("pre-gelu", 20), ("post-rms-gelu-tanh", 23), ("pre-rms-silu", 24)],
)
def test_every_stage_is_an_output_in_its_shape(name: str, opset: int) -> None:
    layer = load().layers[name]
    told, H = layer.model_dump(mode="json"), layer.attention.num_heads
    parameters = {name: value.astype(np.float32) for name, value in layer_parameters(layer, {}).items()}
    exported = export(told, parameters, "float32", opset, biased=False)
    model = finish(exported, told, parameters, exporter="onnx_jax", opset=opset, versions={})
    x = np.random.default_rng(0).standard_normal((B, S, layer.d_model)).astype(np.float32)
    given = {"x": x, "mask": np.ones((B, H, S, S), np.bool_), "valid": np.ones((B, S), np.bool_)}
    found = runtimes.open(model.SerializeToString()).run(given)
    assert sorted(found) == sorted(stages(layer))
    sizes = {**layer_sizes(layer), "B": B, "S": S, "T": S}
    for stage, value in found.items():
        assert value.shape == tuple(sizes[axis] for axis in SHAPES[stage].split()), stage
