"""Attention, RMSNorm and the rotation of queries and keys as the operators that ONNX has for them from opset 23 on.

A query with no key has weights of 0 in Attention (onnx/onnx#8068). Where a layer says uniform, or a number in the place
of minus infinity, the mask is numbers to add, so low that with any score they give themselves again.
"""

import math

from encoder_conformance.impls.onnx_direct import plain, positional, steps
from encoder_conformance.impls.onnx_direct.form import Form, Lines
from encoder_conformance.spec.plan import Step, scaled_by

SCORES, WEIGHTS = 0, 3
"""Values of qk_matmul_output_mode: what the operator's fourth output is."""


def attend(form: Form) -> Lines:
    """The operator shows the scores, or the weights: for each there is one more, gone from a model without them."""
    row = form.attention["fully_masked_row"]
    query, key, value = _of_heads(form)
    lines, attributes = [], []
    if form.dtype == "float64":  # the attribute is a float32
        lines.append(f"scaled_query = Div({query}, root)")
        query = "scaled_query"
        attributes.append("scale = 1.0")
    elif form.attention["scale"] != "head_dim":
        attributes.append(f"scale = {1 / math.sqrt(scaled_by(form.described))!r}")
    if cap := form.attention.get("softcap"):
        attributes.append(f"softcap = {float(cap)!r}")
    masking, mask, has_key = _masked(form)
    lines += masking
    given = f"({query}, {key}, {value}, {mask})"

    def showing(what: str, mode: int) -> str:
        shown = ", ".join((*attributes, f"qk_matmul_output_mode = {mode}"))
        return f'{what}_context, "", "", {what} = Attention <{shown}> {given}'

    weights, context = ("attention_weights", "context") if row != "nan" else ("weights_of_keys", "context_of_keys")
    chosen = f" <{', '.join(attributes)}>" if attributes else ""
    lines += [
        showing("attention_scores", SCORES),
        showing(weights, WEIGHTS),
        f"{context} = Attention{chosen} {given}",
        *_shown_beside(form),
    ]
    if row == "nan":
        lines += [
            f"attention_weights = Where({has_key}, weights_of_keys, undefined)",
            f"context = Where({has_key}, context_of_keys, undefined)",
        ]
    return lines


def _shown_beside(form: Form) -> Lines:
    """Stages that the operator does not show, off the scores that it shows: gone from a model without them."""
    biased, capped = form.step("position_bias"), form.step("softcap")
    if biased is not None and capped is not None:
        raise ValueError("Attention caps scores before it adds numbers to them; position_bias is added before softcap")
    if biased is not None:
        return [f"{biased.makes} = Add(attention_scores, position_numbers)"]
    return [] if capped is None else steps.softcap(form, capped, "attention_scores")


def _of_heads(form: Form) -> tuple[str, str, str]:
    """Query [B, H, S, d], key and value [B, K, S, d]: the operator gives each head of keys its queries (E-28)."""
    scored, attended = form.step("scores"), form.step("attend")
    assert scored is not None
    assert attended is not None
    before = {step.makes: step.reads[0] for step in form.steps if step.form == "repeat_heads"}
    query, key = scored.reads
    value = attended.reads[1]
    return query, before.get(key, key), before.get(value, value)


def _masked(form: Form) -> tuple[Lines, str, str]:
    """The operator's mask, of truths, or of numbers where some are added to scores; and which queries have a key."""
    lines, added, row = positional.seen(form), "bias" if form.biased else "", form.attention["fully_masked_row"]
    mask, has_key = ("mask", "has_key") if form.window is None else ("seen", "has_seen")
    if (step := form.step("position_bias")) is not None:
        lines += positional.position_numbers(step)
        lines += ["all_added = Add(bias, position_numbers)"] if added else []
        added = "all_added" if added else "position_numbers"
    if row != "uniform" and not added:
        return lines, mask, has_key
    masked = "filled_added" if row == "uniform" else "infinite"
    return [*lines, f"added = Where({mask}, {added or 'nought'}, {masked})"], "added", has_key


def norm(form: Form, step: Step) -> Lines:
    if step.right != "rms_norm":
        return plain.norm(form, step)
    epsilon, [x] = step.choices["epsilon"], step.reads
    return [f"{step.makes} = RMSNormalization <axis = -1, epsilon = {epsilon!r}> ({x}, {step.owner}.gain)"]


def turn(form: Form, step: Step, x: str) -> Lines:
    """By rows of the cosines and sines of all places, which each item's places choose (E-22). The operator has no
    float64."""
    if form.dtype == "float64":
        return positional.rotation(form, step, x)
    n, y = form.attention["rope"].get("rotated") or 0, step.makes
    return [
        f"{y}_sizes = Shape <start = 0, end = 2> (data)",
        f"{y}_places = Expand(places, {y}_sizes)",
        f"{y} = RotaryEmbedding <interleaved = {int(step.right == 'interleaved')}, rotary_embedding_dim = {n}> "
        f"({x}, cosine, sine, {y}_places)",
    ]
