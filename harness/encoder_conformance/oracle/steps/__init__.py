"""The steps of an encoder layer: each with its standard form and, beside it, its named wrong ones.

`VARIANTS` says which forms each step has; the first is the standard one. Only the oracle knows that there are others:
a deviation's patch names them (specs/deviations/), and `encoder_conformance.oracle.encoder` looks them up here.
"""

from collections.abc import Callable
from typing import Any

from encoder_conformance.oracle.steps import activation, attention, embedding, heads, linear, norm, residual, softmax
from encoder_conformance.spec.layer import Layer

LayerOrder = Callable[[int], tuple[int | None, ...]]
"""The number of layers of a stack → the number of the layer at each place; None where there is none."""

LAYER_ORDER: dict[str, LayerOrder] = {
    "standard": lambda layers: tuple(range(layers)),
    "without-last": lambda layers: (*range(layers - 1), None),
    "first-for-all": lambda layers: (0,) * layers,
}

VARIANTS: dict[str, dict[str, Any]] = {
    "norm1": norm.VARIANTS,
    "norm2": norm.VARIANTS,
    "final_norm": norm.FINAL,
    "query": linear.PROJECTION,
    "key": linear.PROJECTION,
    "value": linear.PROJECTION,
    "attention_output": linear.VARIANTS,
    "ffn_hidden": linear.VARIANTS,
    "ffn_output": linear.VARIANTS,
    "query_heads": heads.SPLIT,
    "key_heads": heads.SPLIT,
    "value_heads": heads.SPLIT,
    "merge_heads": heads.MERGE,
    "attention_scores": attention.SCORES,
    "attention_bias": attention.BIAS,
    "masked_softmax": softmax.SOFTMAX,
    "attend": attention.ATTEND,
    "activation": activation.VARIANTS,  # the layer names its standard form
    "after_ffn": activation.AFTER,
    "residual1": residual.VARIANTS,
    "residual2": residual.VARIANTS,
    "tokens": embedding.TOKENS,
    "positions": embedding.POSITIONS,
    "after_embedding": embedding.AFTER,
    "between_layers": embedding.BETWEEN,
    "layer_order": LAYER_ORDER,
    "stack_norm": norm.STACK,
    "stack_end": norm.STACK_END,
}


def right_forms(layer: Layer) -> dict[str, str]:
    """Step → the form that this layer chooses, where that is not the standard one or there is none."""
    forms: dict[str, str] = {"activation": layer.feed_forward.activation}
    if layer.norm.kind == "rms_norm":
        forms |= dict.fromkeys(("norm1", "norm2", "final_norm", "stack_norm", "stack_end"), "rms_norm")
    if layer.attention.projections == "shared_by_heads":
        forms |= {"query": "shared_by_heads", "key": "shared_by_heads", "value": "shared_by_heads"}
    if layer.attention.scale == "d_model":
        forms |= {"attention_scores": "by-d-model"}
    if layer.embedding is not None and layer.embedding.positions == "none":
        forms |= {"positions": "none"}
    return forms


def form_of(step: str, right: str, wrong: str) -> str | None:
    """The wrong form of a step as a layer has it whose right form is `right`; None where it says nothing of that.

    Wrong forms are variants of the standard one: an unbiased variance says nothing of an RMSNorm. What can go wrong
    with another choice of the layer too has a form of its own there, by `forms_of`.
    """
    if step == "activation":  # its wrong forms take the place of any, but for variants of one
        return wrong if activation.VARIANT_OF.get(wrong, right) == right else None
    if right == "standard":
        return wrong
    beside = f"{right}-{wrong}"
    return beside if beside in VARIANTS[step] else None


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
"""Forms whose values depend on bits that nobody specifies; only their size can be predicted."""

MIXES_ITEMS = frozenset({"over-batch", "across-batch"})
"""Forms that compute an item of the batch from the others too."""
