"""The steps of an encoder layer: each with its standard form and, beside it, its named wrong ones.

`WAYS` says which forms each step has; the first is the standard one. Only the oracle knows that there are others:
a deviation's patch names them (specs/deviations/), and `harness.oracle.encoder` looks them up here.
"""

from typing import Any

from harness.oracle.steps import activation, attention, heads, linear, norm, residual, softmax

WAYS: dict[str, dict[str, Any]] = {
    "norm1": norm.WAYS,
    "norm2": norm.WAYS,
    "final_norm": norm.FINAL,
    "query": linear.PROJECTION,
    "key": linear.PROJECTION,
    "value": linear.PROJECTION,
    "attention_output": linear.WAYS,
    "ffn_hidden": linear.WAYS,
    "ffn_output": linear.WAYS,
    "query_heads": heads.SPLIT,
    "key_heads": heads.SPLIT,
    "value_heads": heads.SPLIT,
    "merge_heads": heads.MERGE,
    "attention_scores": attention.SCORES,
    "attention_bias": attention.BIAS,
    "masked_softmax": softmax.SOFTMAX,
    "attend": attention.ATTEND,
    "activation": activation.WAYS,  # the layer names its standard form
    "after_ffn": activation.AFTER,
    "residual1": residual.WAYS,
    "residual2": residual.WAYS,
}

NOISY = frozenset(
    {
        "fast-variance",
        "dropout",
        "dropout-broadcast",
        "without-largest",
        "without-largest-flushed",
        "in-bfloat16",
        "in-float16",
        "in-tf32",
        "in-float32",
    }
)
"""Forms whose values depend on bits that nobody specifies; only their size can be foretold."""
