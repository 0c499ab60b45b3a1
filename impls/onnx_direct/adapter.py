"""Writes the encoder as ONNX text, in plain operators, and runs it."""

from collections.abc import Mapping
from typing import Any

import onnx

from harness.adapter import Tensors, serve
from impls.onnx_direct import plain
from impls.onnx_direct.text import Form, encoder
from impls.onnx_model.adapter import OnnxAdapter


class OnnxDirect(OnnxAdapter):
    road = "onnx_direct"
    exporters = ()
    sources = ("impls.onnx_direct",)

    def export(
        self, layer: Mapping[str, Any], parameters: Tensors, dtype: str, opset: int, *, biased: bool
    ) -> onnx.ModelProto:
        return encoder(Form(layer, dtype, opset, biased, plain.attend, plain.norm), parameters)


if __name__ == "__main__":
    serve(OnnxDirect())
