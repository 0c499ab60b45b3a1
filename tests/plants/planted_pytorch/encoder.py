"""The forward pass of an EncoderLayer of impls/pytorch on its own modules, cut into the steps that may be planted."""

from collections.abc import Mapping
from typing import Any

from planting import check_ways
from torch import Tensor, nn

from encoder_conformance.impls.bases.tap import Tap
from encoder_conformance.impls.pytorch.encoder import EncoderLayer
from planted_pytorch.attention import EMPTY_ROW, with_empty_rows
from planted_pytorch.steps import NORM, RMS_NORM, VARIANTS


def planted_layer(
    layer: EncoderLayer, ways: Mapping[str, str], x: Tensor, mask: Tensor | None, bias: Tensor | None, tap: Tap[Tensor]
) -> Tensor:
    """`ways` names the wrong form of each step that is planted. Taps as `EncoderLayer` does."""
    check_ways(ways, VARIANTS)
    first, attention, feed_forward = x, layer.attention, layer.feed_forward

    def step(name: str, *operands: Any, own: str = "standard") -> Tensor:
        return VARIANTS[name][ways.get(name, own)](*operands)

    def norm_step(name: str, n: nn.Module, x: Tensor) -> Tensor:
        """A wrong LayerNorm that says nothing of RMSNorm is none there."""
        form = ways.get(name, "standard")
        return RMS_NORM.get(form, RMS_NORM["standard"])(n, x) if isinstance(n, nn.RMSNorm) else NORM[form](n, x)

    def attend(x: Tensor) -> Tensor:
        q = tap("query", step("query", attention.W_q, x, attention.num_heads))
        k = tap("key", step("key", attention.W_k, x, attention.num_heads))
        v = tap("value", step("value", attention.W_v, x, attention.num_heads))
        q = tap("query_heads", step("query_heads", q, attention.num_heads))
        k = tap("key_heads", step("key_heads", k, attention.num_heads))
        v = tap("value_heads", step("value_heads", v, attention.num_heads))
        scores = tap("attention_scores", step("attention_scores", q, k))
        if bias is not None:
            scores = step("attention_bias", scores, bias)
        weights = step("masked_softmax", scores, mask, own=f"empty-row-{attention.softmax.empty_row}")
        if ways.get("masked_softmax", "").startswith("in-"):  # right but for its format
            weights = with_empty_rows(weights, mask, EMPTY_ROW[attention.softmax.empty_row](weights))
        weights = tap("attention_weights", weights)
        context = tap("context", step("attend", weights, v))
        merged = tap("context_merged", step("merge_heads", context))
        return tap("attention_output", step("attention_output", attention.W_o, merged))

    def feed(x: Tensor) -> Tensor:
        h = tap("ffn_hidden", step("ffn_hidden", feed_forward.hidden, x))
        h = tap("ffn_activation", step("activation", feed_forward.activation, h))
        return tap("ffn_output", step("after_ffn", step("ffn_output", feed_forward.output, h)))

    def norm(name: str, x: Tensor) -> Tensor:
        return tap(name, norm_step(name, getattr(layer, name), x))

    if layer.sublayers[0].norm_before is not None:
        normed = norm("norm1", x)
        x = tap("residual1", step("residual1", x, attend(normed), normed, first))
        normed = norm("norm2", x)
        x = tap("residual2", step("residual2", x, feed(normed), normed, first))
        return tap("output", step("final_norm", layer.norm2, x))
    x = norm("norm1", tap("residual1", step("residual1", x, attend(x), x, first)))
    return tap("output", norm("norm2", tap("residual2", step("residual2", x, feed(x), x, first))))
