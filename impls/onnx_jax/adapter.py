"""Exports the JAX encoder by jax2onnx."""

from collections.abc import Mapping
from typing import Any

import onnx

from encoder_conformance import Tensors, serve
from encoder_conformance.impls.bases.onnx_model.adapter import OnnxAdapter


class OnnxJax(OnnxAdapter):
    exporter = "onnx_jax"
    packages = ("jax", "jax2onnx")
    sources = ("encoder_conformance.impls.onnx_jax", "encoder_conformance.impls.jax_pure")

    def export(
        self, layer: Mapping[str, Any], parameters: Tensors, dtype: str, opset: int, *, biased: bool
    ) -> onnx.ModelProto:
        from encoder_conformance.impls.onnx_jax.encoder import export

        return export(layer, parameters, dtype, opset, biased=biased)


if __name__ == "__main__":
    serve(OnnxJax())
