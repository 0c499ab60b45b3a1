"""Exports the Keras encoder by `model.export(format="onnx")`, or by tf2onnx itself."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from encoder_conformance import Tensors, serve
from encoder_conformance.impls.bases.onnx_model.adapter import OnnxAdapter


class OnnxKeras(OnnxAdapter):
    exporter = "onnx_keras"
    packages = ("keras", "tensorflow-cpu", "tf2onnx")
    sources = ("encoder_conformance.impls.onnx_keras", "encoder_conformance.impls.keras_tf")

    def export(
        self, layer: Mapping[str, Any], parameters: Tensors, dtype: str, opset: int, *, biased: bool
    ) -> onnx.ModelProto:
        from encoder_conformance.impls.onnx_keras.encoder import export

        return export(layer, parameters, dtype, opset, biased=biased, by=self.choices["by"])

    def read_checkpoint(self, layer: dict[str, Any], like: Tensors, dtype: str, path: Path) -> Tensors:
        """Read the encoder's weights as keras.saving.save_weights writes them."""
        from encoder_conformance.impls.keras_tf.checkpoint import read

        return read(path, layer, like, dtype)


if __name__ == "__main__":
    serve(OnnxKeras())
