"""A Transformer encoder layer, batch first: sub-layers one after the other, or side by side, made of parts that are
passed in."""

from dataclasses import dataclass

from torch import Tensor, nn

from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.pytorch.attention import Masks, MultiHeadAttention
from encoder_conformance.impls.pytorch.feed_forward import FeedForward


@dataclass(frozen=True)
class SubLayer:
    """A residual sum around a body, with its norm before the body (E-3), after it (E-25) or of the sum (E-4): what is
    None is not there. What the body gives is multiplied by a gain (E-31) and by a weight (E-29). `name`: of what it
    gives. No nn.Module: its parts belong to the layer, whose state dict names them."""

    name: str
    body: MultiHeadAttention | FeedForward
    dropout: nn.Dropout
    norm_before: nn.Module | None = None
    norm_after: nn.Module | None = None
    norm_of_sum: nn.Module | None = None
    gain: nn.Parameter | None = None
    weight: float | None = None

    def __call__(self, x: Tensor, number: int, masks: Masks, tap: Tap[Tensor]) -> Tensor:
        """[B, S, D]. `number` counts the sub-layers of a layer from 1, as stages do."""
        x = tap(f"residual{number}", x + self.branch(x, number, masks, tap))
        return x if self.norm_of_sum is None else tap(f"norm{number}", self.norm_of_sum(x))

    def branch(self, x: Tensor, number: int, masks: Masks, tap: Tap[Tensor]) -> Tensor:
        """What is added, [B, S, D]."""
        h = x if self.norm_before is None else tap(f"norm{number}", self.norm_before(x))
        h = self.body(h, masks, tap)
        if self.norm_after is not None:
            h = tap(f"{self.name}_norm", self.norm_after(h))
        if self.gain is not None:
            h = tap(f"{self.name}_scaled", h * self.gain)
        if self.weight is not None:
            h = h * h.new_tensor(self.weight)
        return self.dropout(h)


class EncoderLayer(nn.Module):
    """The sub-layers in the order in which they are given: `EncoderLayer(attention=…, feed_forward=…)`. Bodies are
    parts of the layer by these names; norms and dropouts by their numbers, `norm1` and `dropout1`. `parallel`: both
    read x (E-41), by `shared_norm` where it is given.

    Weights begin as Xavier uniform, biases and shifts as 0, gains as 1.
    """

    attention: MultiHeadAttention

    def __init__(self, *, parallel: bool = False, shared_norm: nn.Module | None = None, **sublayers: SubLayer) -> None:
        super().__init__()
        self.sublayers, self.parallel, self.shares_norm = tuple(sublayers.values()), parallel, shared_norm is not None
        for number, (name, sublayer) in enumerate(sublayers.items(), 1):
            self.add_module(f"norm{number}", sublayer.norm_before or sublayer.norm_of_sum)
            self.add_module(f"norm_after{number}", sublayer.norm_after)
            self.register_parameter(f"gain{number}", sublayer.gain)
            self.add_module(name, sublayer.body)
            self.add_module(f"dropout{number}", sublayer.dropout)
        if shared_norm is not None:
            self.norm1 = shared_norm
        self.apply(initialise)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        valid: Tensor | None = None,
        tap: Tap[Tensor] = untapped,
        positions: Tensor | None = None,
    ) -> Tensor:
        """x [B, S, D]; mask None or bool, broadcast to [B, H, S, S], true where a key may be attended to; bias, None or
        in the dtype of x and broadcast as the mask is, is added to the scores; valid, None or bool [B, S], is true
        where x holds data and not padding; positions, None or [B or 1, S], are those of x, else 0 … S − 1."""
        self.attention.check_fit(x, mask)
        if valid is not None and mask is not None:
            x = x.masked_fill(~self.attention.softmax.needed(valid, mask).unsqueeze(-1), 0.0)
        masks = Masks(mask, bias, positions)
        if self.parallel:
            return tap("output", self.side_by_side(x, masks, tap))
        for number, sublayer in enumerate(self.sublayers, 1):
            x = sublayer(x, number, masks, tap)
        return tap("output", x)

    def side_by_side(self, x: Tensor, masks: Masks, tap: Tap[Tensor]) -> Tensor:
        """x [B, S, D] and what each sub-layer makes of it (E-41)."""
        given = tap("norm1", self.norm1(x)) if self.shares_norm else x
        for number, sublayer in enumerate(self.sublayers, 1):
            x = x + sublayer.branch(given, number, masks, tap)
        return tap("residual2", x)


def initialise(module: nn.Module) -> None:
    """Gains of 1 and shifts of 0 are what PyTorch's norms begin with."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
