"""The lines of each form of step, in operators that every opset has.

Shapes: B batch, S sequence, D d_model, H num_heads, K heads of key and value, d head_dim, F d_ff.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from encoder_conformance.impls.onnx_direct import positional
from encoder_conformance.impls.onnx_direct.form import Form, Lines
from encoder_conformance.spec.plan import Step


def projection(form: Form, step: Step, x: str) -> Lines:
    """Query, key or value of x, [B, S, H · d] or [B, S, K · d]."""
    if step.right != "shared_by_heads":
        return linear(form, step, x)
    by_heads = replace(step, makes=f"{step.makes}_by_heads")
    return [
        f"{step.makes}_input = Reshape({x}, split)",
        *linear(form, by_heads, f"{step.makes}_input"),
        f"{step.makes} = Reshape({by_heads.makes}, merged)",
    ]


def split_heads(form: Form, step: Step, x: str) -> Lines:
    """[B, S, H · d] → [B, H, S, d], or of the K heads of keys and values."""
    split, own = f"{step.makes}_split", step.choices["num_heads"] == form.attention["num_heads"]
    return [
        f"{split} = Reshape({x}, {'split' if own else 'split_shared'})",
        f"{step.makes} = Transpose <perm = [0, 2, 1, 3]> ({split})",
    ]


def repeat_heads(form: Form, step: Step, x: str) -> Lines:
    """[B, K, S, d] → [B, H, S, d] (E-28)."""
    if not form.repeats:
        return []
    return [f"{step.makes} = Gather <axis = 1> ({x}, shared_heads)"]


def append(form: Form, step: Step, x: str) -> Lines:
    """[B, H, S, d] → [B, H, S + 1, d]: each head's share of a vector behind what it has of the positions (E-44)."""
    y = step.makes
    vector = f"{step.owner}.vector" if step.parameters else "nought"
    head = f"{y}_head = Reshape({vector}, heads_of_one)" if step.parameters else f"{y}_head = Identity({vector})"
    return [
        head,
        f"{y}_items = Shape <start = 0, end = 1> ({x})",
        f"{y}_sizes = Concat <axis = 0> ({y}_items, heads_of_one)",
        f"{y}_last = Expand({y}_head, {y}_sizes)",
        f"{y} = Concat <axis = 2> ({x}, {y}_last)",
    ]


def merge_heads(form: Form, step: Step, x: str) -> Lines:
    """[B, H, S, d] → [B, S, H · d]."""
    split = f"{step.makes}_split"
    return [f"{split} = Transpose <perm = [0, 2, 1, 3]> ({x})", f"{step.makes} = Reshape({split}, merged)"]


def linear(form: Form, step: Step, x: str) -> Lines:
    y = step.makes
    if "bias" not in step.parameters:
        return [f"{y} = MatMul({x}, {step.owner}.weight)"]
    return [f"{y}_product = MatMul({x}, {step.owner}.weight)", f"{y} = Add({y}_product, {step.owner}.bias)"]


def activation(form: Form, step: Step, x: str) -> Lines:
    name, y = step.right, step.makes
    if name == "relu":
        return [f"{y} = Relu({x})"]
    if name == "silu":
        return [f"sigmoid = Sigmoid({x})", f"{y} = Mul({x}, sigmoid)"]
    if name == "quick_gelu":
        return [f"steeper = Mul({x}, slope)", "sigmoid = Sigmoid(steeper)", f"{y} = Mul({x}, sigmoid)"]
    if form.has_gelu:
        kind = "tanh" if name == "gelu_tanh" else "none"
        return [f'{y} = Gelu <approximate = "{kind}"> ({x})']
    if name == "gelu":
        inside = [f"scaled = Div({x}, root_two)", "bent = Erf(scaled)"]
    else:
        inside = [
            f"square = Mul({x}, {x})",
            f"cube = Mul(square, {x})",
            "cubic_term = Mul(cube, cubic)",
            f"polynomial = Add({x}, cubic_term)",
            "scaled = Mul(polynomial, root_two_by_pi)",
            "bent = Tanh(scaled)",
        ]
    return [*inside, "half_open = Add(bent, one)", f"opened = Mul({x}, half_open)", f"{y} = Mul(opened, half)"]


def softcap(form: Form, step: Step, x: str) -> Lines:
    """cap · tanh(x / cap) (E-30)."""
    y = step.makes
    return [f"{y}_share = Div({x}, cap)", f"{y}_bent = Tanh({y}_share)", f"{y} = Mul({y}_bent, cap)"]


def tokens(form: Form, step: Step) -> Lines:
    """[B, S, D] of ids [B, S] (E-15), times √D (E-35)."""
    if step.right != "by-root":
        return [f"{step.makes} = Gather <axis = 0> ({step.owner}.weight, x)"]
    return [
        f"token_rows = Gather <axis = 0> ({step.owner}.weight, x)",
        f"{step.makes} = Mul(token_rows, root_of_width)",
    ]


def token_types(form: Form, step: Step, x: str) -> Lines:
    """x [B, S, D] and the rows of the types [B, S] of the tokens (E-36)."""
    y = step.makes
    return [f"{y}_rows = Gather <axis = 0> ({step.owner}.weight, token_types)", f"{y} = Add({x}, {y}_rows)"]


def passed_on(form: Form, step: Step, x: str) -> Lines:
    return [f"{step.makes} = Identity({x})"]


def nothing(form: Form, step: Step, *reads: str) -> Lines:
    """A step that another writes, or that passes on what it reads as the output."""
    return []


def norm(form: Form, step: Step, *reads: str) -> Lines:
    return form.norm(form, replace(step, reads=reads))


LINES: Mapping[str, Callable[..., Lines]] = {
    "norm": norm,
    "projection": projection,
    "split_heads": split_heads,
    "repeat_heads": repeat_heads,
    "append": append,
    "rotation": lambda form, step, x: form.turn(form, step, x),
    # The product of queries and keys and what is done with it, up to context, is one text.
    **dict.fromkeys(("scores", "position_bias", "softcap", "bias", "softmax", "end", "same"), nothing),
    "attend": lambda form, step, *reads: form.attend(form),
    "merge_heads": merge_heads,
    "linear": linear,
    "activation": activation,
    "product": lambda form, step, one, other: [f"{step.makes} = Mul({one}, {other})"],
    "by_feature": lambda form, step, x: [f"{step.makes} = Mul({x}, {step.owner}.gain)"],
    "times": lambda form, step, x: [f"{step.makes} = Mul({x}, weight_of_branch)"],
    "after_ffn": passed_on,
    "sum": lambda form, step, x, branch: [f"{step.makes} = Add({x}, {branch})"],
}
"""Form of a step of a layer → its lines."""
OF_EMBEDDING: Mapping[str, Callable[..., Lines]] = {
    "tokens": tokens,
    "token_types": token_types,
    "positions": positional.sinusoidal,
    "learned_positions": positional.learned_positions,
    "same": passed_on,
    "norm": norm,
    "after_embedding": passed_on,
}
"""Form of a step before the layers → its lines."""
