"""A stack of encoder layers: token embedding and positions before it, a norm after it, each if it is passed in."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from encoder_conformance.impls.bases.tap import Tap, inside, untapped
from encoder_conformance.impls.pytorch.encoder import EncoderLayer


class Encoder(nn.Module):
    """Layers one after the other (E-14). With an `embedding` the input is token ids [B, S] (E-15), to which `positions`
    are added (E-16), and `dropout` drops of the sum."""

    def __init__(
        self,
        layers: Iterable[EncoderLayer],
        *,
        norm: nn.Module | None = None,
        embedding: nn.Embedding | None = None,
        positions: Callable[[Tensor, Tensor | None], Tensor] | None = None,
        dropout: nn.Dropout | None = None,
    ) -> None:
        super().__init__()
        self.positions, self.embedding, self.dropout = positions, embedding, dropout
        self.layers, self.norm = nn.ModuleList(layers), norm
        self.again = False
        """Whether the backward pass makes the activations of each layer again, one layer at a time. Only what goes from
        layer to layer is kept: a checkpoint around the whole stack would hold all of it once more, and save nothing."""

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        valid: Tensor | None = None,
        tap: Tap[Tensor] = untapped,
        positions: Tensor | None = None,
    ) -> Tensor:
        """The output, of EncoderLayer's arguments. `tap` is shown what goes from layer to layer, and in a stack of few
        layers what is inside.

        `positions`: where x or token ids lie, [B or 1, S]; None for 0 … S − 1.
        """
        if self.embedding is not None:
            x = self.embedding(x)
            if self.positions is not None:
                x = x + self.positions(x, positions)
            x = tap("embedded", x)
        if self.dropout is not None:
            x = self.dropout(x)
        for number, layer in enumerate(self.layers):
            given = x, mask, bias, valid, inside(tap, number, len(self.layers)), positions
            x = tap(f"layer_{number}", checkpoint(layer, *given, use_reentrant=False) if self.again else layer(*given))
        if self.norm is not None:
            x = tap("final_norm", self.norm(x))
        return tap("output", x)


def without_padding(ids: Tensor, padding_id: int, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mask [B, 1 or H, 1 or S, S] and `valid` [B, S] of token ids [B, S]: those of padding are masked."""
    valid = ids != padding_id
    return (valid[:, None, None] if mask is None else mask & valid[:, None, None]), valid


def sinusoidal(x: Tensor, positions: Tensor | None = None) -> Tensor:
    """[S, D] in the dtype of x: sin(s / 10000^(2i / D)) at feature 2i, the cosine at 2i + 1; s counts from 0. [B or 1,
    S, D], where s is given as `positions` [B or 1, S]."""
    _, S, D = x.shape
    # A tensor and no Python float: torch.onnx.export would round that to float32.
    step = x.new_tensor(10000.0).log() / D
    rates = torch.exp(-step * torch.arange(0, D, 2, dtype=x.dtype, device=x.device))
    places = torch.arange(S, dtype=x.dtype, device=x.device) if positions is None else positions.to(x.dtype)
    angles = places[..., None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :D]
