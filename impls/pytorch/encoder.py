"""A Transformer encoder layer, batch first, with its norms before (pre) or after (post) each sub-layer.

Shapes: B batch, S sequence, D d_model, H num_heads, d = D / H, F d_ff.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

Tap = Callable[[str, Tensor], Tensor]
"""Is shown every stage by name, in the order in which they are computed, and hands each one on."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}  # F.gelu is the exact one, by erf


def untapped(name: str, stage: Tensor) -> Tensor:
    return stage


class MultiHeadAttention(nn.Module):
    """softmax(q kᵀ / √d) v in each of H heads. `mask` is true where a key may be attended to."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"d_model = {d_model} is not divisible by num_heads = {num_heads}")
        self.num_heads = num_heads
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, mask: Tensor | None, tap: Tap = untapped) -> Tensor:
        q = tap("query", self.W_q(x))  # [B, S, D]
        k = tap("key", self.W_k(x))
        v = tap("value", self.W_v(x))
        q = tap("query_heads", self.split(q))  # [B, H, S, d]
        k = tap("key_heads", self.split(k))
        v = tap("value_heads", self.split(v))
        if tap is untapped:
            context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            context = written_out_attention(q, k, v, mask, tap)
        merged = tap("context_merged", tap("context", context).transpose(1, 2).flatten(2))  # [B, S, D]
        return tap("attention_output", self.W_o(merged))

    def split(self, x: Tensor) -> Tensor:
        """[B, S, D] to [B, H, S, d]."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def written_out_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, tap: Tap) -> Tensor:
    """What F.scaled_dot_product_attention computes, step by step, to show the scores and the weights."""
    root_d = q.new_tensor(q.size(-1)).sqrt()  # no Python float: torch.onnx.export would round it to float32
    scores = tap("attention_scores", q @ k.transpose(-2, -1) / root_d)  # [B, H, S, S]
    if mask is not None:
        # -1e30 and not -inf: the weights are the same, and an item that is all padding gives no NaN.
        scores = scores.masked_fill(~mask, -1e30)
    weights = tap("attention_weights", scores.softmax(dim=-1))
    return weights @ v


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int, activation: str) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation = {activation!r}, not one of {', '.join(ACTIVATIONS)}")
        self.hidden = nn.Linear(d_model, d_ff)
        self.activation = ACTIVATIONS[activation]
        self.output = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor, tap: Tap = untapped) -> Tensor:
        h = tap("ffn_activation", self.activation(tap("ffn_hidden", self.hidden(x))))  # [B, S, F]
        return tap("ffn_output", self.output(h))


class EncoderLayer(nn.Module):
    def __init__(
        self, d_model: int, num_heads: int, d_ff: int, *, activation: str, placement: str, epsilon: float
    ) -> None:
        super().__init__()
        if placement not in ("pre", "post"):
            raise ValueError(f"placement = {placement!r}, not one of pre, post")
        self.placement = placement
        self.norm1 = nn.LayerNorm(d_model, eps=epsilon)
        self.attention = MultiHeadAttention(d_model, num_heads)
        self.norm2 = nn.LayerNorm(d_model, eps=epsilon)
        self.feed_forward = FeedForward(d_model, d_ff, activation)

    def forward(self, x: Tensor, mask: Tensor | None = None, tap: Tap = untapped) -> Tensor:
        """x [B, S, D]; mask None or bool, broadcast to [B, H, S, S], true where a key may be attended to."""
        if self.placement == "pre":
            x = tap("residual1", x + self.attention(tap("norm1", self.norm1(x)), mask, tap))
            x = tap("residual2", x + self.feed_forward(tap("norm2", self.norm2(x)), tap))
        else:
            x = tap("norm1", self.norm1(tap("residual1", x + self.attention(x, mask, tap))))
            x = tap("norm2", self.norm2(tap("residual2", x + self.feed_forward(x, tap))))
        return tap("output", x)
