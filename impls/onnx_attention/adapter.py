"""Writes the encoder as ONNX text with the Attention and RMSNormalization operators, and runs it."""

from collections.abc import Mapping
from typing import Any

import onnx

from harness.adapter import Tensors, serve
from impls.onnx_attention import operators
from impls.onnx_direct.text import Form, encoder
from impls.onnx_model.adapter import OnnxAdapter


class OnnxAttention(OnnxAdapter):
    road = "onnx_attention"
    exporters = ()
    sources = ("impls.onnx_attention", "impls.onnx_direct")

    def export(
        self, layer: Mapping[str, Any], parameters: Tensors, dtype: str, opset: int, *, biased: bool
    ) -> onnx.ModelProto:
        return encoder(Form(layer, dtype, opset, biased, operators.attend, operators.norm), parameters)


if __name__ == "__main__":
    serve(OnnxAttention())
