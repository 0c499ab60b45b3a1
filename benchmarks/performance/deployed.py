"""Writes the ONNX files that `validate` is measured at: one layer, and a whole encoder of twelve from token ids.

`python -m benchmarks.performance.deployed layer|encoder FILE`
"""

import sys

import torch
from torch import Tensor, nn

FREE = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(128, 8, 512, batch_first=True)

    def forward(self, x: Tensor, attend: Tensor) -> Tensor:
        return self.layer(x, src_key_padding_mask=attend == 0)


class Encoder(nn.Module):
    """The shapes of BERT-base."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(30522, 768), nn.Embedding(512, 768)
        self.norm = nn.LayerNorm(768, eps=1e-12)
        layer = nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", layer_norm_eps=1e-12, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)

    def forward(self, ids: Tensor, attend: Tensor) -> Tensor:
        embedded = self.words(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.layers(self.norm(embedded), src_key_padding_mask=attend == 0)


def drawn(module: nn.Module) -> nn.Module:
    """The module with the same numbers each time."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.05 if parameter.ndim > 1 else 0.2)
    return module.eval()


def encoder() -> nn.Module:
    return drawn(Encoder())


def write(kind: str, path: str) -> None:
    torch.backends.mha.set_fastpath_enabled(False)
    module, name, first = (
        (drawn(Layer()), "x", torch.randn(2, 7, 128))
        if kind == "layer"
        else (encoder(), "ids", torch.randint(9, (2, 7)))
    )
    torch.onnx.export(
        module, (first, torch.ones(2, 7, dtype=torch.long)), path, dynamo=True, verbose=False,
        dynamic_shapes=(FREE, FREE), input_names=[name, "attend"], output_names=["y"], external_data=False,
    )  # fmt: skip


if __name__ == "__main__":
    write(*sys.argv[1:])
