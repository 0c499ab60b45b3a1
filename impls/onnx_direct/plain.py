"""Attention and the norms in operators that every opset has."""

from encoder_conformance.impls.onnx_direct.text import Form, Lines, reduced


def attend(form: Form) -> Lines:
    """softmax(q kᵀ / √d + bias) v, for heads [B, H, S, d]. A query with no key has weights of 0 where the layer leaves
    it open."""
    row = form.attention["fully_masked_row"]
    lines = [
        "key_turned = Transpose <perm = [0, 1, 3, 2]> (key_heads)",
        "products = MatMul(query_heads, key_turned)",
        "attention_scores = Div(products, root)",
    ]
    scores = "attention_scores"
    if form.biased:
        lines.append(f"biased = Add({scores}, bias)")
        scores = "biased"
    # A row of the lowest number has weights of 1/S, where one of minus infinity has NaN.
    filled = "infinite" if row == "nan" else "filled"
    lines += [f"masked = Where(mask, {scores}, {filled})"]
    if row in ("uniform", "nan"):
        lines.append("attention_weights = Softmax <axis = -1> (masked)")
    else:
        lines += [
            "row_weights = Softmax <axis = -1> (masked)",
            "attention_weights = Where(has_key, row_weights, nought)",
        ]
    return [*lines, "context = MatMul(attention_weights, value_heads)"]


def norm(form: Form, x: str, y: str, name: str) -> Lines:
    if form.layer["norm"]["kind"] == "layer_norm":
        epsilon = form.layer["norm"]["epsilon"]
        return [f"{y} = LayerNormalization <axis = -1, epsilon = {epsilon!r}> ({x}, {name}.gain, {name}.shift)"]
    return [
        f"{y}_square = Mul({x}, {x})",
        reduced(form, f"{y}_mean", "ReduceMean", f"{y}_square", last=True),
        f"{y}_sum = Add({y}_mean, epsilon)",
        f"{y}_root = Sqrt({y}_sum)",
        f"{y}_unit = Div({x}, {y}_root)",
        f"{y} = Mul({y}_unit, {name}.gain)",
    ]
