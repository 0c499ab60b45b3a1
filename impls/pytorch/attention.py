"""Multi-head attention (E-5), of linear maps and a masked softmax that are passed in.

Shapes: B batch, S queries, T keys, D d_model, H num_heads, d = D / H.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.pytorch.softmax import MaskedSoftmax


class Masks(NamedTuple):
    """`allowed`, None or bool, is true where a key may be attended to; `bias`, None or in the dtype of x, is added to
    the scores (M-7). Both broadcast to [B, H, S, T]."""

    allowed: Tensor | None = None
    bias: Tensor | None = None


class SharedByHeads(nn.Linear):
    """A d × d map of each head's features (E-12): [B, S, D] to [B, S, D]."""

    def __init__(self, head_dim: int, num_heads: int, *, bias: bool) -> None:
        super().__init__(head_dim, head_dim, bias=bias)
        self.num_heads = num_heads

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.unflatten(-1, (self.num_heads, -1))).flatten(-2)


class Maps(NamedTuple):
    """The linear maps of attention. Query, key and value are all nn.Linear or all SharedByHeads."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    output: nn.Linear


class MultiHeadAttention(nn.Module):
    """softmax(q kᵀ / √scaled_by + bias) v in each of H heads, where scaled_by is d (E-5) or D (E-13)."""

    def __init__(self, maps: Maps, num_heads: int, scaled_by: int, softmax: MaskedSoftmax, dropout: nn.Dropout) -> None:
        super().__init__()
        self.d_model, self.num_heads, self.scaled_by = maps.output.out_features, num_heads, scaled_by
        if self.d_model % num_heads:
            raise ValueError(f"d_model = {self.d_model} is not divisible by num_heads = {num_heads}")
        self.W_q, self.W_k, self.W_v, self.W_o = maps
        self.softmax, self.dropout = softmax, dropout

    def forward(self, x: Tensor, masks: Masks, tap: Tap[Tensor] = untapped, memory: Tensor | None = None) -> Tensor:
        """[B, S, D]. Keys and values are made of `memory` [B, T, D] where it is given (E-17), and else of x."""
        keys = x if memory is None else memory
        q = tap("query", self.W_q(x))  # [B, S, D]
        k = tap("key", self.W_k(keys))
        v = tap("value", self.W_v(keys))
        q = tap("query_heads", self.split(q))  # [B, H, S, d]
        k = tap("key_heads", self.split(k))
        v = tap("value_heads", self.split(v))
        attend = self.fused if tap is untapped and self.softmax.is_fused else self.written_out
        context = tap("context", attend(q, k, v, masks, tap))
        merged = tap("context_merged", context.transpose(1, 2).flatten(2))  # [B, S, D]
        return tap("attention_output", self.W_o(merged))

    def split(self, x: Tensor) -> Tensor:
        """[B, S, D] to [B, H, S, d]."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def fused(self, q: Tensor, k: Tensor, v: Tensor, masks: Masks, tap: Tap[Tensor]) -> Tensor:
        """[B, H, S, d], by PyTorch's kernel."""
        mask, bias = masks
        if bias is not None:
            mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        dropped, scale = self.dropout.p if self.training else 0.0, self.scaled_by**-0.5
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropped, scale=scale)

    def written_out(self, q: Tensor, k: Tensor, v: Tensor, masks: Masks, tap: Tap[Tensor]) -> Tensor:
        """[B, H, S, d], step by step, to show the scores and the weights."""
        root = q.new_tensor(self.scaled_by).sqrt()  # no Python float: torch.onnx.export would round it to float32
        scores = tap("attention_scores", q @ k.transpose(-2, -1) / root)  # [B, H, S, T]
        if masks.bias is not None:
            scores = scores + masks.bias
        weights = tap("attention_weights", self.softmax(scores, masks.allowed))
        return self.dropout(weights) @ v

    def check_fit(self, x: Tensor, mask: Tensor | None) -> None:
        """Refuse, with one error for every layer, what PyTorch refuses further down in the words of a kernel (X-1)."""
        if x.dtype != self.W_o.weight.dtype:
            raise TypeError(f"x is {x.dtype}, and the layer is {self.W_o.weight.dtype}")
        if x.ndim != 3 or x.shape[-1] != self.d_model:
            raise ValueError(f"x is {list(x.shape)}, and the layer takes [batch, sequence, {self.d_model}]")
        B, S, _ = x.shape
        due = (B, self.num_heads, S, S)
        # The due size comes first, for torch.export, to which batch and sequence are symbols: they differ from 1.
        if mask is not None and not all(size in (n, 1) for size, n in zip(mask.shape[::-1], due[::-1], strict=False)):
            raise ValueError(f"the mask is {list(mask.shape)}, which does not broadcast to {list(due)}")
