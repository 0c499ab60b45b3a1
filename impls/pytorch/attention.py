"""Multi-head attention (E-5), of linear maps, a masked softmax and more parts that are passed in, or left out.

Shapes: B batch, S queries, T keys, D d_model, H num_heads, d head_dim, K heads of keys and values (H, or fewer).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder_conformance.impls.bases.choices import refuse_uneven, refuse_unfit
from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.pytorch.positions import LinearBias, PositionBias, Rotation, Window
from encoder_conformance.impls.pytorch.softmax import MaskedSoftmax


class Masks(NamedTuple):
    """`allowed`, None or bool, is true where a key may be attended to; `bias`, None or in the dtype of x, is added to
    the scores (M-7). Both broadcast to [B, H, S, T]. `positions`, None or [B or 1, S]: those of x, else 0 … S − 1."""

    allowed: Tensor | None = None
    bias: Tensor | None = None
    positions: Tensor | None = None

    def beside_appended(self) -> "Masks":
        """For scores with one key behind those of the positions, which nothing hides (E-44)."""
        allowed = None if self.allowed is None else F.pad(self.allowed, (0, 1), value=True)
        return self._replace(allowed=allowed, bias=None if self.bias is None else F.pad(self.bias, (0, 1)))


class SharedByHeads(nn.Linear):
    """A d × d map of each head's features (E-12): [B, S, D] to [B, S, D]."""

    def __init__(self, head_dim: int, num_heads: int, *, bias: bool) -> None:
        super().__init__(head_dim, head_dim, bias=bias)
        self.num_heads = num_heads

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.unflatten(-1, (self.num_heads, -1))).flatten(-2)


class Appended(nn.Module):
    """One key, or one value, of each head behind those of the positions (E-44), [K · d]; without a `size` it is 0."""

    def __init__(self, size: int | None) -> None:
        super().__init__()
        self.vector = None if size is None else nn.Parameter(torch.zeros(size))

    def forward(self, heads: Tensor) -> Tensor:
        """[B, K, T, d] to [B, K, T + 1, d]."""
        B, H, _, d = heads.shape
        last = heads.new_zeros(B, H, 1, d) if self.vector is None else self.vector.view(1, H, 1, d).expand(B, H, 1, d)
        return torch.cat((heads, last), dim=2)


class Maps(NamedTuple):
    """The linear maps of attention. Query, key and value are all nn.Linear or all SharedByHeads."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear


@dataclass(frozen=True)
class Options:
    """What attention does beside the classic one: norms of queries and keys over all heads or of each (E-27), a
    rotation (E-22), a bias by position (E-23), a window (E-26), a cap of its scores (E-30), and a key and a value that
    no position has (E-44)."""

    norms: tuple[nn.Module, nn.Module] | None = None
    norms_of_heads: tuple[nn.Module, nn.Module] | None = None
    rotation: Rotation | None = None
    position_bias: PositionBias | LinearBias | None = None
    holds_bias: bool = True
    """Whether the table of the bias is a parameter of this attention, and not of another that shares it (E-34)."""
    window: Window | None = None
    softcap: float | None = None
    appended: tuple[Appended, Appended] | None = None


PLAIN = Options()


class MultiHeadAttention(nn.Module):
    """softmax(q kᵀ / √scaled_by + bias) v in each of H heads, where scaled_by is d (E-5), D (E-13) or a number."""

    def __init__(
        self,
        maps: Maps,
        num_heads: int,
        scaled_by: float,
        softmax: MaskedSoftmax,
        dropout: nn.Dropout,
        options: Options = PLAIN,
    ) -> None:
        super().__init__()
        self.d_model, self.num_heads, self.scaled_by = maps.output.out_features, num_heads, scaled_by
        refuse_uneven(maps.output.in_features, num_heads)
        self.W_q, self.W_k, self.W_v, self.W_o = maps
        self.head_dim = maps.output.in_features // num_heads
        self.softmax, self.dropout, self.options = softmax, dropout, options
        if options.holds_bias:
            self.position_bias = options.position_bias
        if norms := options.norms or options.norms_of_heads:
            self.query_norm, self.key_norm = norms
        if options.appended is not None:
            self.appended_key, self.appended_value = options.appended

    def forward(self, x: Tensor, masks: Masks, tap: Tap[Tensor] = untapped, memory: Tensor | None = None) -> Tensor:
        """[B, S, D]. Keys and values are made of `memory` [B, T, D] where it is given (E-17), and else of x."""
        keys = x if memory is None else memory
        q = tap("query", self.W_q(x))  # [B, S, H · d]
        k = tap("key", self.W_k(keys))  # [B, T, K · d]
        v = tap("value", self.W_v(keys))
        q, k = self.normed(q, k, self.options.norms, tap, "")
        q = tap("query_heads", self.split(q))  # [B, H, S, d]
        k = tap("key_heads", self.split(k))  # [B, K, T, d]
        v = tap("value_heads", self.split(v))
        q, k = self.normed(q, k, self.options.norms_of_heads, tap, "_heads")
        if (rotation := self.options.rotation) is not None:
            q, k = (rotation(each, masks.positions) for each in (q, k))
            q, k = tap("query_rotated", q), tap("key_rotated", k)
        if self.options.appended is not None:
            k, v, masks = self.appended_key(k), self.appended_value(v), masks.beside_appended()
        if (times := self.num_heads // k.shape[1]) > 1:  # E-28
            k, v = (each.repeat_interleave(times, dim=1) for each in (k, v))
        if self.options.window is not None:
            masks = masks._replace(allowed=self.options.window.joined(masks.allowed, x))
        is_fused = tap is untapped and self.softmax.is_fused and self.options.softcap is None
        context = tap("context", (self.fused if is_fused else self.written_out)(q, k, v, masks, tap))
        merged = tap("context_merged", context.transpose(1, 2).flatten(2))  # [B, S, H · d]
        return tap("attention_output", self.W_o(merged))

    def normed(
        self, q: Tensor, k: Tensor, norms: tuple[nn.Module, nn.Module] | None, tap: Tap[Tensor], of: str
    ) -> tuple[Tensor, Tensor]:
        """Query and key, each by its norm where there is one (E-27)."""
        if norms is None:
            return q, k
        return tap(f"query{of}_norm", norms[0](q)), tap(f"key{of}_norm", norms[1](k))

    def split(self, x: Tensor) -> Tensor:
        """[B, S, H · d] to [B, H, S, d]."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def fused(self, q: Tensor, k: Tensor, v: Tensor, masks: Masks, tap: Tap[Tensor]) -> Tensor:
        """[B, H, S, d], by PyTorch's kernel."""
        mask, bias = masks.allowed, masks.bias
        if self.options.position_bias is not None:
            own = self.options.position_bias(q, k)
            bias = own if bias is None else own + bias
        if bias is not None:
            mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        dropped, scale = self.dropout.p if self.training else 0.0, self.scaled_by**-0.5
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropped, scale=scale)

    def written_out(self, q: Tensor, k: Tensor, v: Tensor, masks: Masks, tap: Tap[Tensor]) -> Tensor:
        """[B, H, S, d], step by step, to show the scores and the weights."""
        root = q.new_tensor(self.scaled_by).sqrt()  # no Python float: torch.onnx.export would round it to float32
        scores = tap("attention_scores", q @ k.transpose(-2, -1) / root)  # [B, H, S, T]
        if self.options.position_bias is not None:
            scores = tap("position_biased", scores + self.options.position_bias(q, k))
        if self.options.softcap is not None:
            cap = scores.new_tensor(self.options.softcap)
            scores = tap("capped", cap * torch.tanh(scores / cap))
        if masks.bias is not None:
            scores = scores + masks.bias
        weights = tap("attention_weights", self.softmax(scores, masks.allowed))
        return self.dropout(weights) @ v

    def check_fit(self, x: Tensor, mask: Tensor | None) -> None:
        """Refuse, with one error for every layer, what PyTorch refuses further down in the words of a kernel (X-1)."""
        if x.dtype != self.W_o.weight.dtype:
            raise TypeError(f"x is {x.dtype}, and the layer is {self.W_o.weight.dtype}")
        refuse_unfit(x.shape, None if mask is None else mask.shape, self.d_model, self.num_heads)
