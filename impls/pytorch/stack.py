"""A stack of encoder layers: token embedding and sinusoidal positions before it, a norm after it, each if asked for."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from encoder_conformance import shows_inside
from encoder_conformance.impls.pytorch.encoder import NORMS, Config, EncoderLayer, Tap, check, untapped


class Encoder(nn.Module):
    """So many layers of `config`. With a `vocabulary` the input is token ids [B, S]."""

    def __init__(
        self,
        config: Config,
        layers: int,
        *,
        final_norm: bool = False,
        vocabulary: int | None = None,
        positions: str = "none",
    ) -> None:
        super().__init__()
        check("positions", positions, ("none", "sinusoidal"))
        self.positions = positions
        self.embedding = None if vocabulary is None else nn.Embedding(vocabulary, config.d_model)
        self.dropout = nn.Dropout(config.dropout.embedded)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(layers))
        self.norm = NORMS[config.norm](config.d_model, eps=config.epsilon) if final_norm else None

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        valid: Tensor | None = None,
        tap: Tap = untapped,
        again: bool = False,
    ) -> Tensor:
        """As EncoderLayer's. `tap` is shown what goes from layer to layer, and in a stack of few layers what is inside.

        `again`: the backward pass makes the activations of each layer again, one layer at a time. Only what goes from
        layer to layer is kept: a checkpoint around the whole stack would hold all of it once more, and save nothing.
        """
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


def without_padding(ids: Tensor, padding_id: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mask [B, 1 or H, 1 or S, S] and `valid` [B, S] of token ids [B, S]: those of padding are masked."""
    valid = ids != padding_id
    return (valid[:, None, None] if mask is None else mask & valid[:, None, None]), valid


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
