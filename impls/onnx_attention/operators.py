"""Attention and RMSNorm as the operators that ONNX has for them from opset 23 on.

A query with no key has weights of 0 in Attention (onnx/onnx#8068). Where a layer says uniform, or a number in the place
of minus infinity, the mask is numbers to add, so low that with any score they give themselves again.
"""

import math

from encoder_conformance.impls.onnx_direct import plain
from encoder_conformance.impls.onnx_direct.form import Form, Lines
from encoder_conformance.spec.plan import Step

SCORES, WEIGHTS = 0, 3
"""Values of qk_matmul_output_mode: what the operator's fourth output is."""


def attend(form: Form) -> Lines:
    """The operator shows the scores, or the weights: for each there is one more, gone from a model without them."""
    row = form.attention["fully_masked_row"]
    lines, query, scale, mask = [], "query_heads", "", "mask"
    if form.dtype == "float64":  # the attribute is a float32
        lines.append("scaled_query = Div(query_heads, root)")
        query, scale = "scaled_query", "scale = 1.0"
    elif form.attention["scale"] == "d_model":
        scale = f"scale = {1 / math.sqrt(form.layer['d_model'])!r}"
    if row == "uniform" or form.biased:
        allowed, masked = "bias" if form.biased else "nought", "filled_added" if row == "uniform" else "infinite"
        lines.append(f"added = Where(mask, {allowed}, {masked})")
        mask = "added"
    given = f"({query}, key_heads, value_heads, {mask})"

    def showing(what: str, mode: int) -> str:
        attributes = ", ".join(filter(None, (scale, f"qk_matmul_output_mode = {mode}")))
        return f'{what}_context, "", "", {what} = Attention <{attributes}> {given}'

    weights, context = ("attention_weights", "context") if row != "nan" else ("weights_of_keys", "context_of_keys")
    lines += [
        showing("attention_scores", SCORES),
        showing(weights, WEIGHTS),
        f"{context} = Attention{f' <{scale}>' if scale else ''} {given}",
    ]
    if row == "nan":
        lines += [
            "attention_weights = Where(has_key, weights_of_keys, undefined)",
            "context = Where(has_key, context_of_keys, undefined)",
        ]
    return lines


def norm(form: Form, step: Step) -> Lines:
    if step.right != "rms_norm":
        return plain.norm(form, step)
    epsilon, [x] = step.choices["epsilon"], step.reads
    return [f"{step.makes} = RMSNormalization <axis = -1, epsilon = {epsilon!r}> ({x}, {step.owner}.gain)"]
