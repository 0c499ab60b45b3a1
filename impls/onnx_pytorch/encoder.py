"""The PyTorch encoder layer as an ONNX model: exported once with every stage an output, then cut down to deploy.

Both models take x [batch, sequence, d_model]; mask [batch, num_heads, sequence, sequence], bool, true where a query
(third axis) may attend to a key (fourth); and valid [batch, sequence], bool, true where x holds data and not padding. A
biased one takes bias too, which is added to the scores, in the shape of the mask and the dtype of x. Batch and sequence
are free.
"""

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.utils
import torch
from torch import Tensor, nn

from impls.pytorch.encoder import EncoderLayer

OPSET = 18


class StagedEncoderLayer(EncoderLayer):
    """The encoder layer, giving all of its stages. Its attention is written out, so that the export is as written."""

    def forward(self, x: Tensor, mask: Tensor, valid: Tensor, bias: Tensor | None = None) -> dict[str, Tensor]:
        stages: dict[str, Tensor] = {}

        def tap(name: str, stage: Tensor) -> Tensor:
            stages[name] = stage
            return stage

        super().forward(x, mask, bias, valid, tap)
        return stages


def export(encoder: StagedEncoderLayer, *, biased: bool) -> onnx.ModelProto:
    """A model with an output for each stage and an initializer for each parameter, under its PyTorch name.

    The parameters are random: put your own into the initializers. Weights are [in, out], PyTorch's transposed.
    """
    for parameter in encoder.parameters():
        nn.init.normal_(parameter)  # equal tensors, such as the gains of two new norms, would become one initializer
    gain = encoder.norm1.weight
    # A size of 1 in the example would be exported as a constant (pytorch/pytorch#170264).
    x = torch.zeros(2, 3, gain.numel(), dtype=gain.dtype)
    mask = torch.ones(2, encoder.attention.num_heads, 3, 3, dtype=torch.bool)
    valid = torch.ones(2, 3, dtype=torch.bool)
    given = (x, mask, valid, torch.zeros(mask.shape, dtype=gain.dtype)) if biased else (x, mask, valid)
    batch, sequence = torch.export.Dim("batch"), torch.export.Dim("sequence")
    free = {0: batch, 2: sequence, 3: sequence}
    program = torch.onnx.export(
        encoder.eval(),
        given,
        dynamic_shapes=({0: batch, 1: sequence}, free, {0: batch, 1: sequence}, *([free] if biased else [])),
        output_names=list(encoder(*given)),
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
    )
    model = program.model_proto
    name_parameters(model.graph, encoder)
    onnx.checker.check_model(model, full_check=True)
    return model


def name_parameters(graph: onnx.GraphProto, encoder: nn.Module) -> None:
    """Give each initializer its parameter's name: the exporter numbers the weights whose transposition it folds."""
    named = {name: parameter.numpy(force=True) for name, parameter in encoder.named_parameters()}
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for name, parameter in named.items():
        [held] = [own for own, value in values.items() if np.array_equal(value, parameter.T)]
        _rename(graph, held, name)


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for tensor in graph.initializer:
        if tensor.name == old:
            tensor.name = new
    for node in graph.node:
        for at, name in enumerate(node.input):
            if name == old:
                node.input[at] = new


def deployed(staged: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the last stage as its only output, which leaves a runtime free to fuse what comes before."""
    model = onnx.utils.Extractor(staged).extract_model([given.name for given in staged.graph.input], ["output"])
    onnx.checker.check_model(model, full_check=True)
    return model
