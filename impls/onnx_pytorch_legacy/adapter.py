"""Exports the PyTorch encoder by torch.onnx.export(dynamo=False), which traces it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from encoder_conformance import Tensors, serve
from encoder_conformance.impls.bases.onnx_model.adapter import OnnxAdapter


class OnnxPyTorchLegacy(OnnxAdapter):
    exporter = "onnx_pytorch_legacy"
    packages = ("torch",)
    sources = (
        "encoder_conformance.impls.onnx_pytorch_legacy",
        "encoder_conformance.impls.onnx_pytorch",
        "encoder_conformance.impls.pytorch",
    )

    def export(
        self, layer: Mapping[str, Any], parameters: Tensors, dtype: str, opset: int, *, biased: bool
    ) -> onnx.ModelProto:
        from encoder_conformance.impls.onnx_pytorch_legacy.encoder import export

        return export(layer, parameters, dtype, opset, biased=biased)

    def read_checkpoint(self, layer: dict[str, Any], like: Tensors, dtype: str, path: Path) -> Tensors:
        from encoder_conformance.impls.pytorch.checkpoint import read

        return read(path, layer, like)


if __name__ == "__main__":
    serve(OnnxPyTorchLegacy())
