"""Attention and the norms in operators that every opset has."""

from encoder_conformance.impls.onnx_direct import positional, steps
from encoder_conformance.impls.onnx_direct.form import Form, Lines, reduced
from encoder_conformance.spec.plan import Step


def attend(form: Form) -> Lines:
    """softmax(q kᵀ / √scaled_by + bias) v, for heads [B, H, S, d]. A query with no key has weights of 0 where the layer
    leaves it open."""
    row, scored, attended = form.attention["fully_masked_row"], form.step("scores"), form.step("attend")
    assert scored is not None
    assert attended is not None
    query, key = scored.reads
    lines = [
        f"key_turned = Transpose <perm = [0, 1, 3, 2]> ({key})",
        f"products = MatMul({query}, key_turned)",
        "attention_scores = Div(products, root)",
    ]
    scores = "attention_scores"
    for name, of in (("position_bias", positional.position_bias), ("softcap", steps.softcap)):
        if (step := form.step(name)) is not None:
            lines += of(form, step, scores)
            scores = step.makes
    if form.attention.get("appended_key"):
        lines += beside_appended(form)
    if form.biased:
        lines.append(f"biased = Add({scores}, {'bias_beside' if form.attention.get('appended_key') else 'bias'})")
        scores = "biased"
    # A row of the lowest number has weights of 1/S, where one of minus infinity has NaN.
    filled = "infinite" if row == "nan" else "filled"
    mask, has_key = ("mask", "has_key") if form.window is None else ("seen", "has_seen")
    if form.attention.get("appended_key"):
        mask, has_key = "mask_beside", "appended_column"
    lines += [*positional.seen(form), f"masked = Where({mask}, {scores}, {filled})"]
    if row in ("uniform", "nan"):
        lines.append("attention_weights = Softmax <axis = -1> (masked)")
    else:
        lines += [
            "row_weights = Softmax <axis = -1> (masked)",
            f"attention_weights = Where({has_key}, row_weights, nought)",
        ]
    return [*lines, f"context = MatMul(attention_weights, {attended.reads[1]})"]


def beside_appended(form: Form) -> Lines:
    """mask_beside and bias_beside [B, H, S, S + 1]: with a column for the key that no mask hides (E-44), which is
    appended_column [B, H, S, 1] of the mask."""
    lines = [
        "lacks_key = Not(has_key)",
        "appended_column = Or(has_key, lacks_key)",
        "mask_beside = Concat <axis = -1> (mask, appended_column)",
    ]
    if not form.biased:
        return lines
    return [
        *lines,
        "no_column = Not(appended_column)",
        "no_bias = CastLike(no_column, bias)",
        "bias_beside = Concat <axis = -1> (bias, no_bias)",
    ]


def norm(form: Form, step: Step) -> Lines:
    [x], y, name = step.reads, step.makes, step.owner
    if step.right != "rms_norm":
        shift = f", {name}.shift" if "shift" in step.parameters else ""
        epsilon = step.choices["epsilon"]
        return [f"{y} = LayerNormalization <axis = -1, epsilon = {epsilon!r}> ({x}, {name}.gain{shift})"]
    return [
        f"{y}_square = Mul({x}, {x})",
        reduced(form, f"{y}_mean", "ReduceMean", f"{y}_square", last=True),
        f"{y}_sum = Add({y}_mean, epsilon)",
        f"{y}_root = Sqrt({y}_sum)",
        f"{y}_unit = Div({x}, {y}_root)",
        f"{y} = Mul({y}_unit, {name}.gain)",
    ]
