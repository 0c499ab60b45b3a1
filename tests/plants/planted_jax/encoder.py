"""The forward pass of an EncoderLayer of impls/jax_pure on its own parameters, cut into the steps that may be
planted."""

from collections.abc import Mapping
from typing import Any

from jax import Array
from planting import check_ways

from encoder_conformance.impls.jax_pure.encoder import EncoderLayer
from encoder_conformance.impls.jax_pure.feed_forward import ACTIVATIONS
from encoder_conformance.impls.jax_pure.primitives import Tree, rms_norm
from planted_jax.attention import EMPTY_ROW, with_empty_rows
from planted_jax.steps import NORM, RMS_NORM, VARIANTS


def planted_stages(
    layer: EncoderLayer, ways: Mapping[str, str], params: Tree, x: Array, mask: Array | None, bias: Array | None
) -> dict[str, Array]:
    """Every stage by name. `ways` names the wrong form of each step that is planted."""
    check_ways(ways, VARIANTS)
    first, stages = x, dict[str, Array]()
    attention, sublayer = layer.attention, layer.sublayers[0]
    is_pre, H = sublayer.norm_before is not None, attention.num_heads
    own_norm = sublayer.norm_before or sublayer.norm_of_sum

    def tap(name: str, stage: Array) -> Array:
        stages[name] = stage
        return stage

    def step(name: str, *operands: Any, own: str = "standard") -> Array:
        return VARIANTS[name][ways.get(name, own)](*operands)

    def attend(x: Array) -> Array:
        p = params["attention"]
        q, k, v = (tap(name, step(name, p[name], x, H)) for name in ("query", "key", "value"))
        q = tap("query_heads", step("query_heads", q, H))
        k = tap("key_heads", step("key_heads", k, H))
        v = tap("value_heads", step("value_heads", v, H))
        scores = tap("attention_scores", step("attention_scores", q, k))
        if bias is not None:
            scores = step("attention_bias", scores, bias)
        weights = step("masked_softmax", scores, mask, own=f"empty-row-{attention.softmax.empty_row}")
        if ways.get("masked_softmax", "").startswith("in-"):  # right but for its format
            weights = with_empty_rows(weights, mask, EMPTY_ROW[attention.softmax.empty_row](weights))
        weights = tap("attention_weights", weights)
        context = tap("context", step("attend", weights, v))
        merged = tap("context_merged", step("merge_heads", context))
        return tap("attention_output", step("attention_output", p["output"], merged))

    def feed(x: Array) -> Array:
        p = params["feed_forward"]
        h = tap("ffn_hidden", step("ffn_hidden", p["hidden"], x))
        h = tap("ffn_activation", step("activation", ACTIVATIONS[layer.sublayers[1].body.activation], h))
        return tap("ffn_output", step("after_ffn", step("ffn_output", p["output"], h)))

    def norm(name: str, x: Array) -> Array:
        """A wrong LayerNorm that says nothing of RMSNorm is none there."""
        form = ways.get(name, "standard")
        forms = RMS_NORM if own_norm.function is rms_norm else NORM
        return tap(name, forms.get(form, forms["standard"])(params[name], x, own_norm.epsilon))

    if is_pre:
        normed = norm("norm1", x)
        x = tap("residual1", step("residual1", x, attend(normed), normed, first))
        normed = norm("norm2", x)
        x = tap("residual2", step("residual2", x, feed(normed), normed, first))
        tap("output", step("final_norm", params["norm2"], x, own_norm.epsilon))
    else:
        x = norm("norm1", tap("residual1", step("residual1", x, attend(x), x, first)))
        tap("output", norm("norm2", tap("residual2", step("residual2", x, feed(x), x, first))))
    return stages
