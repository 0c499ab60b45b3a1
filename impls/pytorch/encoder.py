"""A Transformer encoder layer, batch first, with its norms before (pre) or after (post) each sub-layer.

Shapes: B batch, S sequence, D d_model, H num_heads, d = D / H, F d_ff.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Tap = Callable[[str, Tensor], Tensor]
"""Is shown every stage by name, in the order in which they are computed, and hands each one on."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,  # the exact one, by erf
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
NORMS: dict[str, type[nn.LayerNorm | nn.RMSNorm]] = {"layer_norm": nn.LayerNorm, "rms_norm": nn.RMSNorm}
EPSILON = torch.tensor(1e-5, dtype=torch.float32).item()
"""The float32 number, so that the layer is the same in float64 as in an ONNX file, whose attributes are float32."""
CHOICES: dict[str, Collection[str]] = {
    "activation": ACTIVATIONS,
    "placement": ("pre", "post"),
    "norm": NORMS,
    "empty_row": ("zero", "uniform", "nan"),
}


class Dropout(NamedTuple):
    """The probability that an element becomes 0 in training, at each placement."""

    attention_weights: float = 0.1
    attention_output: float = 0.1
    ffn_activation: float = 0.1
    ffn_output: float = 0.1
    embedded: float = 0.0


@dataclass(frozen=True)
class Config:
    """The sizes and choices of a layer. Without arguments it is the specification's `pre-gelu-512`."""

    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    activation: str = "gelu"
    placement: str = "pre"
    epsilon: float = EPSILON
    norm: str = "layer_norm"
    ffn_bias: bool = True
    qkv_bias: bool = True
    output_bias: bool = True
    shared: bool = False
    """Whether query, key and value are one d × d map each, which the heads share."""
    scale_by_d_model: bool = False
    masked_score: float | None = None
    """What a masked score becomes; minus infinity if it is None."""
    empty_row: str = "zero"
    """The weights of a query with no key to attend to: zero, uniform (1/S) or nan."""
    dropout: Dropout = Dropout()  # noqa: RUF009, a tuple

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads

    def __post_init__(self) -> None:
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model = {self.d_model} is not divisible by num_heads = {self.num_heads}")
        for choice, known in CHOICES.items():
            check(choice, getattr(self, choice), known)


def check(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ValueError(f"{what} = {name!r}, not one of {', '.join(known)}")


PRE_GELU_512 = Config()


def untapped(name: str, stage: Tensor) -> Tensor:
    return stage


def check_fit(x: Tensor, mask: Tensor | None, num_heads: int, gain: Tensor) -> None:
    """Refuse, with one error for every layer, what PyTorch refuses somewhere further down in the words of a kernel."""
    if x.dtype != gain.dtype:
        raise TypeError(f"x is {x.dtype}, and the layer is {gain.dtype}")
    if x.ndim != 3 or x.shape[-1] != gain.numel():
        raise ValueError(f"x is {list(x.shape)}, and the layer takes [batch, sequence, {gain.numel()}]")
    B, S, _ = x.shape
    due = (B, num_heads, S, S)
    # The size that is due comes first, for torch.export, to which batch and sequence are symbols: they differ from 1.
    if mask is not None and not all(size in (n, 1) for size, n in zip(mask.shape[::-1], due[::-1], strict=False)):
        raise ValueError(f"the mask is {list(mask.shape)}, which does not broadcast to {list(due)}")


class MultiHeadAttention(nn.Module):
    """softmax(q kᵀ / √d + bias) v in each of H heads. `mask` is true where a key may be attended to. Keys and values
    are made of `memory` [B, T, D] where it is given, and else of x."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.num_heads, self.shared = config.num_heads, config.shared
        self.scaled_by = config.d_model if config.scale_by_d_model else config.head_dim
        self.masked_score, self.empty_row = config.masked_score, config.empty_row
        size = config.head_dim if config.shared else config.d_model
        self.W_q = nn.Linear(size, size, bias=config.qkv_bias)
        self.W_k = nn.Linear(size, size, bias=config.qkv_bias)
        self.W_v = nn.Linear(size, size, bias=config.qkv_bias)
        self.W_o = nn.Linear(config.d_model, config.d_model, bias=config.output_bias)
        self.dropout = nn.Dropout(config.dropout.attention_weights)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None,
        bias: Tensor | None = None,
        tap: Tap = untapped,
        memory: Tensor | None = None,
    ) -> Tensor:
        keys = x if memory is None else memory
        q = tap("query", self.project(self.W_q, x))  # [B, S, D]
        k = tap("key", self.project(self.W_k, keys))
        v = tap("value", self.project(self.W_v, keys))
        q = tap("query_heads", self.split(q))  # [B, H, S, d]
        k = tap("key_heads", self.split(k))
        v = tap("value_heads", self.split(v))
        # The fused kernel knows no row but zero's.
        if tap is untapped and self.empty_row == "zero" and self.masked_score is None:
            if bias is not None:
                mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
            dropped, scale = self.dropout.p if self.training else 0.0, self.scaled_by**-0.5
            context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropped, scale=scale)
        else:
            context = self.written_out(q, k, v, mask, bias, tap)
        merged = tap("context_merged", tap("context", context).transpose(1, 2).flatten(2))  # [B, S, D]
        return tap("attention_output", self.W_o(merged))

    def needed(self, valid: Tensor, mask: Tensor) -> Tensor:
        """[B, S], false at padding that nothing is to be computed with: a weight of 0 keeps out neither what overflows
        nor NaN. Uniform weights over every key are no 0: an item with a query that has no key keeps its padding."""
        if self.empty_row != "uniform":
            return valid
        return valid | ~mask.any(dim=-1).flatten(1).all(dim=1, keepdim=True)

    def project(self, W: nn.Linear, x: Tensor) -> Tensor:
        return W(x.unflatten(-1, (self.num_heads, -1))).flatten(-2) if self.shared else W(x)

    def split(self, x: Tensor) -> Tensor:
        """[B, S, D] to [B, H, S, d]."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def written_out(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, tap: Tap
    ) -> Tensor:
        """What F.scaled_dot_product_attention computes, step by step, to show the scores and the weights."""
        root = q.new_tensor(self.scaled_by).sqrt()  # no Python float: torch.onnx.export would round it to float32
        scores = tap("attention_scores", q @ k.transpose(-2, -1) / root)  # [B, H, S, S]
        if bias is not None:
            scores = scores + bias
        if mask is not None:
            scores = scores.masked_fill(~mask, self.fill(scores))
        weights = scores.softmax(dim=-1)
        if mask is not None and self.empty_row == "zero":
            weights = weights.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0)
        return self.dropout(tap("attention_weights", weights)) @ v

    def fill(self, scores: Tensor) -> float:
        least = max(torch.finfo(scores.dtype).min, torch.finfo(torch.float32).min)
        if self.masked_score is not None:
            return max(self.masked_score, least)
        if self.empty_row == "nan":
            return -torch.inf
        # A row of the lowest number has weights of 1/S, and a gradient, where one of minus infinity has NaN. No lower
        # than float32's: torch.onnx.export takes a float64's lowest through float32, where it is minus infinity.
        return least


class FeedForward(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.hidden = nn.Linear(config.d_model, config.d_ff, bias=config.ffn_bias)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = nn.Dropout(config.dropout.ffn_activation)
        self.output = nn.Linear(config.d_ff, config.d_model, bias=config.ffn_bias)

    def forward(self, x: Tensor, tap: Tap = untapped) -> Tensor:
        h = tap("ffn_activation", self.activation(tap("ffn_hidden", self.hidden(x))))  # [B, S, F]
        return tap("ffn_output", self.output(self.dropout(h)))


class EncoderLayer(nn.Module):
    """Weights begin as Xavier uniform, biases and shifts as 0, gains as 1."""

    def __init__(self, config: Config = PRE_GELU_512) -> None:
        super().__init__()
        self.placement = config.placement
        self.norm1 = NORMS[config.norm](config.d_model, eps=config.epsilon)
        self.attention = MultiHeadAttention(config)
        self.norm2 = NORMS[config.norm](config.d_model, eps=config.epsilon)
        self.feed_forward = FeedForward(config)
        self.dropout1 = nn.Dropout(config.dropout.attention_output)
        self.dropout2 = nn.Dropout(config.dropout.ffn_output)
        self.apply(initialise)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        valid: Tensor | None = None,
        tap: Tap = untapped,
    ) -> Tensor:
        """x [B, S, D]; mask None or bool, broadcast to [B, H, S, S], true where a key may be attended to; bias, None or
        in the dtype of x and broadcast as the mask is, is added to the scores; valid, None or bool [B, S], is true
        where x holds data and not padding."""
        check_fit(x, mask, self.attention.num_heads, self.norm1.weight)
        if valid is not None and mask is not None:
            x = x.masked_fill(~self.attention.needed(valid, mask).unsqueeze(-1), 0.0)
        if self.placement == "pre":
            x = tap("residual1", x + self.dropout1(self.attention(tap("norm1", self.norm1(x)), mask, bias, tap)))
            x = tap("residual2", x + self.dropout2(self.feed_forward(tap("norm2", self.norm2(x)), tap)))
        else:
            x = tap("norm1", self.norm1(tap("residual1", x + self.dropout1(self.attention(x, mask, bias, tap)))))
            x = tap("norm2", self.norm2(tap("residual2", x + self.dropout2(self.feed_forward(x, tap)))))
        return tap("output", x)


def initialise(module: nn.Module) -> None:
    """Gains of 1 and shifts of 0 are what PyTorch's norms begin with."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
