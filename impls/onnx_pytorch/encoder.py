"""The PyTorch encoder, one layer or a stack, as an ONNX model: exported once with every stage an output, then cut down
to deploy.

Both models take x [batch, sequence, d_model], or under that name token ids [batch, sequence], int64; mask [batch,
num_heads, sequence, sequence], bool, true where a query (third axis) may attend to a key (fourth); and valid [batch,
sequence], bool, true where x holds data and not padding. A biased one takes bias too, which is added to the scores, in
the shape of the mask and the parameters' dtype. Batch and sequence are free.
"""

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.utils
import torch
from torch import Tensor, nn

from impls.pytorch.encoder import EncoderLayer
from impls.pytorch.stack import Encoder

OPSET = 18


class Staged(nn.Module):
    """An encoder giving all of its stages. Its attention is written out, so that the export is as written."""

    def forward(self, x: Tensor, mask: Tensor, valid: Tensor, bias: Tensor | None = None) -> dict[str, Tensor]:
        stages: dict[str, Tensor] = {}

        def tap(name: str, stage: Tensor) -> Tensor:
            stages[name] = stage
            return stage

        super().forward(x, mask, bias, valid, tap)
        return stages


class StagedEncoderLayer(Staged, EncoderLayer): ...


class StagedEncoder(Staged, Encoder): ...


def export(encoder: StagedEncoderLayer | StagedEncoder, *, biased: bool) -> onnx.ModelProto:
    """A model with an output for each stage and an initializer for each parameter, under its PyTorch name.

    The parameters are random: put your own into the initializers. Weights are [in, out], PyTorch's transposed.
    """
    for parameter in encoder.parameters():
        nn.init.normal_(parameter)  # equal tensors, such as the gains of two new norms, would become one initializer
    layer = encoder.layers[0] if isinstance(encoder, Encoder) else encoder
    gain = layer.norm1.weight
    # A size of 1 in the example would be exported as a constant (pytorch/pytorch#170264).
    x = torch.zeros(2, 3, gain.numel(), dtype=gain.dtype)
    if isinstance(encoder, Encoder) and encoder.embedding is not None:
        x = torch.zeros(2, 3, dtype=torch.int64)
    mask = torch.ones(2, layer.attention.num_heads, 3, 3, dtype=torch.bool)
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
    named = {name: parameter.numpy(force=True).T for name, parameter in encoder.named_parameters()}
    if "embedding.weight" in named:
        named["embedding.weight"] = named["embedding.weight"].T  # whose rows are taken as they are
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for name, parameter in named.items():
        [held] = [own for own, value in values.items() if np.array_equal(value, parameter)]
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
