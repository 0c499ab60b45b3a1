"""Writes the encoder as ONNX text with the operators Attention, RMSNormalization and RotaryEmbedding, and runs
it."""

from collections.abc import Mapping
from typing import Any

import onnx

from encoder_conformance import Tensors, serve
from encoder_conformance.impls.bases.onnx_model.adapter import OnnxAdapter
from encoder_conformance.impls.onnx_attention import operators
from encoder_conformance.impls.onnx_direct.form import Form
from encoder_conformance.impls.onnx_direct.text import encoder


class OnnxAttention(OnnxAdapter):
    exporter = "onnx_attention"
    packages = ()
    sources = ("encoder_conformance.impls.onnx_attention", "encoder_conformance.impls.onnx_direct")

    def export(
        self, layer: Mapping[str, Any], parameters: Tensors, dtype: str, opset: int, *, biased: bool
    ) -> onnx.ModelProto:
        form = Form(layer, dtype, opset, biased, operators.attend, operators.norm, operators.turn, repeats=False)
        return encoder(form, parameters)


if __name__ == "__main__":
    serve(OnnxAttention())
