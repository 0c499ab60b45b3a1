"""The PyTorch encoder, traced into an ONNX model with every stage an output."""

import io
import warnings
from collections.abc import Mapping
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from encoder_conformance import Tensors
from encoder_conformance.impls.bases.onnx_model.contract import input_names
from encoder_conformance.impls.onnx_pytorch.encoder import example, staged


class InOrder(nn.Module):
    """Stages as a tuple: a trace has no names."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.encoder(*given).values())


def export(layer: Mapping[str, Any], parameters: Tensors, dtype: str, opset: int, *, biased: bool) -> onnx.ModelProto:
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
    warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)  # that sizes are compared in Python
    encoder, given = staged(layer, parameters, dtype), example(layer, dtype, biased=biased)
    inputs, outputs = input_names(biased=biased), list(encoder(*given))
    free = {0: "batch", 2: "sequence", 3: "sequence"}
    axes = {"x": {0: "batch", 1: "sequence"}, "mask": free, "valid": {0: "batch", 1: "sequence"}, "bias": free}
    written = io.BytesIO()
    torch.onnx.export(
        InOrder(encoder),
        given,
        written,
        input_names=inputs,
        output_names=outputs,
        dynamic_axes={name: axes[name] for name in inputs},
        opset_version=opset,
        dynamo=False,
    )
    return onnx.load_from_string(written.getvalue())
