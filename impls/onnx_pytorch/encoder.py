"""The PyTorch encoder, one layer or a stack, as an ONNX model with every stage an output."""

import gc
import logging
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from encoder_conformance import Tensors, stack_of
from encoder_conformance.impls.bases.onnx_model.contract import input_names
from encoder_conformance.impls.pytorch.adapter import PARAMETERS
from encoder_conformance.impls.pytorch.building import layer_parts, stack_parts
from encoder_conformance.impls.pytorch.encoder import EncoderLayer
from encoder_conformance.impls.pytorch.stack import Encoder

EXAMPLE = 2, 3
"""Batch and sequence at export. A size of 1 would be exported as a constant (pytorch/pytorch#170264)."""


class Staged(nn.Module):
    """An encoder giving all of its stages. Its attention is written out, so that the export is as written: fused
    attention's export of opset 18 gives a query with no key uniform weights, where PyTorch gives it none."""

    def forward(self, x: Tensor, mask: Tensor, valid: Tensor, bias: Tensor | None = None) -> dict[str, Tensor]:
        stages: dict[str, Tensor] = {}

        def tap(name: str, stage: Tensor) -> Tensor:
            stages[name] = stage
            return stage

        super().forward(x, mask, bias, valid, tap)
        return stages


class StagedEncoderLayer(Staged, EncoderLayer): ...


class StagedEncoder(Staged, Encoder): ...


@cache
def once_a_process() -> None:
    """Do once what torch.onnx.export would do for each export, in a third of its time: it reads the signatures of five
    hundred functions of onnxscript out of their sources, the collector looks through all that tracing makes, and a
    cache of what each operation does to shapes, which are symbols here, costs more than it saves.

    The exports are the same. Where a PyTorch keeps registry or cache elsewhere, each export reads it anew, or keeps it.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    with suppress(ImportError, AttributeError):
        torchlib = import_module("torch.onnx._internal.exporter._registration").ONNXRegistry
        torchlib.from_torchlib = staticmethod(cache(torchlib.from_torchlib))
    with suppress(ImportError, AttributeError):
        import_module("torch._dynamo.config").fake_tensor_cache_enabled = False


@torch.no_grad()
def export(layer: Mapping[str, Any], parameters: Tensors, dtype: str, opset: int, *, biased: bool) -> onnx.ModelProto:
    once_a_process()
    warnings.filterwarnings("ignore", module="torch|copyreg")  # the exporter's, about its own insides
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    encoder, given = staged(layer, parameters, dtype), example(layer, dtype, biased=biased)
    batch, sequence = torch.export.Dim("batch"), torch.export.Dim("sequence")
    free = {0: batch, 2: sequence, 3: sequence}
    program = torch.onnx.export(
        encoder,
        given,
        dynamic_shapes=({0: batch, 1: sequence}, free, {0: batch, 1: sequence}, *([free] if biased else [])),
        input_names=input_names(biased=biased),
        output_names=list(encoder(*given)),
        opset_version=opset,
        dynamo=True,
        verbose=False,
    )
    model: onnx.ModelProto = program.model_proto
    return model


def staged(layer: Mapping[str, Any], parameters: Tensors, dtype: str) -> StagedEncoderLayer | StagedEncoder:
    """The layer or stack with these parameters, in eval mode."""
    encoder = StagedEncoder(**stack_parts(layer)) if stack_of(layer) else StagedEncoderLayer(**layer_parts(layer))
    own = PARAMETERS.to_own(parameters, layer)
    encoder.to(getattr(torch, dtype)).load_state_dict({name: torch.tensor(value) for name, value in own.items()})
    return encoder.eval()


def example(layer: Mapping[str, Any], dtype: str, *, biased: bool) -> tuple[Tensor, ...]:
    """Inputs to export with."""
    B, S = EXAMPLE
    x = torch.zeros(B, S, layer["d_model"], dtype=getattr(torch, dtype))
    mask = torch.ones(B, layer["attention"]["num_heads"], S, S, dtype=torch.bool)
    tokens = torch.zeros(B, S, dtype=torch.int64)
    given = (tokens if layer["embedding"] else x, mask, torch.ones(B, S, dtype=torch.bool))
    return (*given, torch.zeros(mask.shape, dtype=x.dtype)) if biased else given
