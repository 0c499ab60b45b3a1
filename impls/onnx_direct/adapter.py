"""Writes the encoder as ONNX text, in plain operators, and runs it."""

from collections.abc import Mapping
from typing import Any

import onnx

from encoder_conformance import Tensors, serve
from encoder_conformance.impls.bases.onnx_model.adapter import OnnxAdapter
from encoder_conformance.impls.onnx_direct import plain, positional
from encoder_conformance.impls.onnx_direct.form import Form
from encoder_conformance.impls.onnx_direct.text import encoder


class OnnxDirect(OnnxAdapter):
    exporter = "onnx_direct"
    packages = ()
    sources = ("encoder_conformance.impls.onnx_direct",)

    def export(
        self, layer: Mapping[str, Any], parameters: Tensors, dtype: str, opset: int, *, biased: bool
    ) -> onnx.ModelProto:
        form = Form(layer, dtype, opset, biased, plain.attend, plain.norm, positional.rotation, repeats=True)
        return encoder(form, parameters)


if __name__ == "__main__":
    serve(OnnxDirect())
