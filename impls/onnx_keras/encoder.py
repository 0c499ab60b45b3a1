"""The Keras encoder as an ONNX model with every stage an output."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from encoder_conformance.impls.keras_tf.adapter import PARAMETERS  # first: it chooses Keras' backend

import keras  # isort: skip
import onnx
import tensorflow as tf
from keras import KerasTensor as Tensor

from encoder_conformance import Tensors
from encoder_conformance.impls.bases.onnx_model.contract import input_names, order_outputs
from encoder_conformance.impls.keras_tf.building import encoder_of


class Staged(keras.Model):
    """An encoder giving all of its stages. Its attention is written out, as it is where stages are asked for."""

    def __init__(self, layer: Mapping[str, Any], dtype: str) -> None:
        super().__init__(dtype=dtype, autocast=False)
        self.encoder = encoder_of(layer, dtype)

    def call(self, given: list[Tensor]) -> dict[str, Tensor]:
        x, mask, valid, *bias = given
        stages: dict[str, Tensor] = {}

        def tap(name: str, stage: Tensor) -> Tensor:
            stages[name] = stage
            return stage

        self.encoder(x, mask, bias[0] if bias else None, valid, tap=tap)
        return stages


def export(
    layer: Mapping[str, Any], parameters: Tensors, dtype: str, opset: int, *, biased: bool, by: str
) -> onnx.ModelProto:
    """`by` is keras or tf2onnx."""
    tf.config.set_visible_devices([], "GPU")
    model, signature = Staged(layer, dtype), signature_of(layer, dtype, biased=biased)
    stages = list(model([tf.ones([2 if size is None else size for size in s.shape], s.dtype) for s in signature]))
    inside = f"{model.name}/{model.encoder.name}/"
    held = {w.path.removeprefix(inside).replace("/scale", "/gamma"): w for w in model.encoder.weights}
    for name, value in PARAMETERS.to_own(parameters, layer).items():
        held[name].assign(value)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        if by == "keras":
            model.export(path, format="onnx", input_signature=[signature], opset_version=opset, verbose=False)
        else:
            import tf2onnx

            forward = tf.function(lambda *given: model(list(given)))
            tf2onnx.convert.from_function(forward, signature, opset=opset, output_path=str(path))
        exported = onnx.load(path)
    order_outputs(exported, stages)
    return exported


def signature_of(layer: Mapping[str, Any], dtype: str, *, biased: bool) -> list[tf.TensorSpec]:
    scores = [None, layer["attention"]["num_heads"], None, None]
    shapes = {"x": [None, None, layer["d_model"]], "mask": scores, "valid": [None, None], "bias": scores}
    dtypes = {"x": dtype, "mask": "bool", "valid": "bool", "bias": dtype}
    if layer["embedding"]:
        shapes["x"], dtypes["x"] = [None, None], "int64"
    return [tf.TensorSpec(shapes[name], dtypes[name], name) for name in input_names(biased=biased)]
