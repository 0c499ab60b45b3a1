"""A stack of encoder layers: an embedding before it, a norm after it, each if it is passed in."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from encoder_conformance.impls.bases.tap import Tap, inside, untapped
from encoder_conformance.impls.pytorch.encoder import EncoderLayer


class LearnedPositions(nn.Module):
    """A row of a table for each position, that of position 0 at `first` (E-37). `skips_padding`: padding has none."""

    def __init__(self, rows: int, first: int, d_model: int, *, skips_padding: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, d_model))
        self.first, self.skips_padding = first, skips_padding

    def forward(self, x: Tensor, positions: Tensor | None, valid: Tensor | None) -> Tensor:
        """[B or 1, S, D] for x [B, S, …]."""
        if positions is not None:
            at = positions.long()
        elif self.skips_padding and valid is not None:
            at = valid.long().cumsum(1) - 1
        else:
            at = torch.arange(x.shape[1], device=x.device)[None]
        # What is padding has any row: where it counts for nothing, -1 would be before the table.
        return self.weight[(at + self.first).clamp(min=0)]


class Embedding(nn.Module):
    """The sum of what is passed in, of token ids [B, S] (E-15), or of x where there are no `tokens` (E-39): their rows,
    multiplied by `scale` (E-35), those of their types (E-36), and positions (E-16, E-37). It is normed (E-38), and
    dropped of."""

    def __init__(
        self,
        dropout: nn.Dropout,
        *,
        tokens: nn.Embedding | None = None,
        scale: float = 1.0,
        types: nn.Embedding | None = None,
        sinusoidal: Callable[[Tensor, Tensor | None], Tensor] | None = None,
        learned: LearnedPositions | None = None,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.tokens, self.scale, self.types, self.sinusoidal = tokens, scale, types, sinusoidal
        self.learned, self.norm, self.dropout = learned, norm, dropout

    def forward(
        self, x: Tensor, positions: Tensor | None, valid: Tensor | None, types: Tensor | None, tap: Tap[Tensor]
    ) -> Tensor:
        """[B, S, D]. `types`: None where all tokens are of type 0."""
        if self.tokens is not None:
            x = self.tokens(x)
            x = x if self.scale == 1.0 else x * x.new_tensor(self.scale)
        if self.types is not None:
            x = x + (self.types.weight[0] if types is None else self.types(types))
        if self.sinusoidal is not None:
            x = x + self.sinusoidal(x, positions)
        if self.learned is not None:
            x = x + self.learned(x, positions, valid)
        if self.norm is not None:
            x = self.norm(tap("embedding_sum", x))
        return self.dropout(tap("embedded", x))


class Encoder(nn.Module):
    """Layers one after the other (E-14), after an `embedding` and before a `norm` where there are any."""

    def __init__(
        self,
        layers: Iterable[EncoderLayer],
        *,
        norm: nn.Module | None = None,
        embedding: Embedding | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.layers, self.norm = embedding, nn.ModuleList(layers), norm
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
        types: Tensor | None = None,
    ) -> Tensor:
        """The output, of EncoderLayer's arguments. `tap` is shown what goes from layer to layer, and in a stack of few
        layers what is inside.

        `positions`: where x or token ids lie, [B or 1, S]; None for 0 … S − 1. `types`: those of the tokens, [B, S];
        None where all are of type 0.
        """
        if self.embedding is not None:
            x = self.embedding(x, positions, valid, types, tap)
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
