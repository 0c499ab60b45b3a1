"""A model as BERT is built, from token ids to hidden states, in plain PyTorch; and its files, as tools write them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions
from torch import Tensor, nn

D, H, F, ROWS, LONGEST = 32, 4, 48, 60, 40


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.dense = (nn.Linear(D, D) for _ in range(4))
        self.intermediate, self.output = nn.Linear(D, F), nn.Linear(F, D)
        self.norm1, self.norm2 = nn.LayerNorm(D, eps=1e-12), nn.LayerNorm(D, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        B, S, _ = x.shape
        q, k, v = (each(x).view(B, S, H, D // H).transpose(1, 2) for each in (self.query, self.key, self.value))
        weights = (torch.matmul(q, k.transpose(-1, -2)) / (D // H) ** 0.5 + mask).softmax(-1)
        context = torch.matmul(weights, v).transpose(1, 2).reshape(B, S, D)
        x = self.norm1(self.dense(context) + x)
        return self.norm2(self.output(nn.functional.gelu(self.intermediate(x))) + x)


class Model(nn.Module):
    """Words, positions and token types, a norm, two layers, a pooler."""

    def __init__(self, layers: int = 2, *, places: bool = True) -> None:
        """Not `places`: every position takes row 0, which is a mistake."""
        super().__init__()
        self.places = places
        self.words, self.positions, self.types = nn.Embedding(ROWS, D), nn.Embedding(LONGEST, D), nn.Embedding(2, D)
        self.norm = nn.LayerNorm(D, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.pooler = nn.Linear(D, D)

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(ids.shape[1]) * int(self.places)
        x = self.norm(self.words(ids) + self.types(types) + self.positions(places)[None])
        added = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, added)
        return x, torch.tanh(self.pooler(x[:, 0]))


class Untyped(nn.Module):
    """The same without token types as an input: they are 0."""

    def __init__(self, held: Model) -> None:
        super().__init__()
        self.held = held

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.held(ids, mask, torch.zeros_like(ids))


def drawn(layers: int = 2, *, places: bool = True) -> Model:
    torch.manual_seed(0)
    model = Model(layers, places=places).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    return model


def exported(path: Path, layers: int = 2, *, types: bool = True, places: bool = True) -> Path:
    """As optimum's files are: token ids, mask and `types` in, hidden states and the pooler's output out."""
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    given = (
        torch.zeros(2, 7, dtype=torch.long),
        torch.ones(2, 7, dtype=torch.long),
        torch.zeros(2, 7, dtype=torch.long),
    )[: len(names)]
    axes = {name: {0: "batch_size", 1: "sequence_length"} for name in (*names, "last_hidden_state")}
    made = drawn(layers, places=places)
    model = made if types else Untyped(made)
    torch.onnx.export(
        model, given, path, opset_version=17, dynamo=False, input_names=names,
        output_names=["last_hidden_state", "pooler_output"], dynamic_axes=axes,
    )  # fmt: skip
    return path


def fused(path: Path, out: Path, *, raw: bool = True, heads: bool = False, half: bool = False) -> Path:
    """By ONNX Runtime's optimiser. `raw`: the mask goes into attention as it is, else as a count; `heads`: the operator
    MultiHeadAttention; `half`: float16 inside, which leaves the nodes out of order."""
    options = FusionOptions("bert")
    options.use_raw_attention_mask(raw)
    options.use_multi_head_attention = heads
    found = optimizer.optimize_model(
        str(path), model_type="bert", num_heads=H, hidden_size=D, opt_level=0, optimization_options=options
    )
    if half:
        found.convert_float_to_float16(keep_io_types=True)
    found.save_model_to_file(str(out))
    return out


def quantised(path: Path, out: Path) -> Path:
    """Weights of 8 bits, in a range that no processor's sums overflow; fused attention becomes QAttention."""
    quantize_dynamic(path, out, weight_type=QuantType.QInt8, reduce_range=True, extra_options={"DefaultTensorType": 1})
    return out


def in_4_bits(path: Path, out: Path) -> Path:
    quantiser = MatMulNBitsQuantizer(onnx.load(path), block_size=16, is_symmetric=False)
    quantiser.process()
    quantiser.model.save_model_to_file(str(out))
    return out


def operators(path: Path) -> set[str]:
    return {node.op_type for node in onnx.load(path).graph.node}


def state(model: Model) -> dict[str, np.ndarray[Any, Any]]:
    return {name: value.numpy() for name, value in model.state_dict().items()}
