"""A stack of encoder layers: token embedding and sinusoidal positions before it, a norm after it, each if asked for."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from encoder_conformance import shows_inside
from encoder_conformance.impls.pytorch.encoder import NORMS, EncoderLayer, Tap, check, untapped


class Encoder(nn.Module):
    """`layer`, d_model and so on, goes to each EncoderLayer. With a `vocabulary` the input is token ids [B, S]."""

    def __init__(
        self,
        *,
        layers: int,
        final_norm: bool = False,
        vocabulary: int | None = None,
        positions: str = "none",
        embedding_dropout: float = 0.0,
        **layer: Any,
    ) -> None:
        super().__init__()
        check("positions", positions, ("none", "sinusoidal"))
        self.positions = positions
        self.embedding = None if vocabulary is None else nn.Embedding(vocabulary, layer["d_model"])
        self.dropout = nn.Dropout(embedding_dropout)
        self.layers = nn.ModuleList(EncoderLayer(**layer) for _ in range(layers))
        norm = NORMS[layer.get("norm", "layer_norm")]
        self.norm = norm(layer["d_model"], eps=layer["epsilon"]) if final_norm else None

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        valid: Tensor | None = None,
        tap: Tap = untapped,
        again: bool = False,
        padding_id: int | None = None,
    ) -> Tensor:
        """As EncoderLayer's. `tap` is shown what goes from layer to layer, and in a stack of few layers what is inside.

        `again`: the backward pass makes the activations of each layer again, one layer at a time. Only what goes from
        layer to layer is kept: a checkpoint around the whole stack would hold all of it once more, and save nothing.
        `padding_id`: the token id of padding, which is masked.
        """
        if padding_id is not None:
            valid = x != padding_id  # [B, S]
            mask = valid[:, None, None] if mask is None else mask & valid[:, None, None]
        if self.embedding is not None:
            x = self.embedding(x)
            if self.positions == "sinusoidal":
                x = x + sinusoidal(x)
            x = self.dropout(tap("embedded", x))
        for number, layer in enumerate(self.layers):
            given = x, mask, bias, valid, self.inside(number, tap)
            x = tap(f"layer_{number}", checkpoint(layer, *given, use_reentrant=False) if again else layer(*given))
        if self.norm is not None:
            x = tap("final_norm", self.norm(x))
        return tap("output", x)

    def inside(self, number: int, tap: Tap) -> Tap:
        """What a layer of the stack is tapped by: its stages are `layer_0.norm1` and so on."""
        if tap is untapped:
            return untapped
        if not shows_inside(len(self.layers)):
            return pass_on
        return lambda name, x: x if name == "output" else tap(f"layer_{number}.{name}", x)


def pass_on(name: str, stage: Tensor) -> Tensor:
    return stage


def sinusoidal(x: Tensor) -> Tensor:
    """[S, D] in the dtype of x: sin(s / 10000^(2i / D)) at feature 2i, the cosine at 2i + 1."""
    _, S, D = x.shape
    # A tensor and no Python float: torch.onnx.export would round that to float32.
    step = x.new_tensor(10000.0).log() / D
    rates = torch.exp(-step * torch.arange(0, D, 2, dtype=x.dtype, device=x.device))
    angles = torch.arange(S, dtype=x.dtype, device=x.device)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :D]
