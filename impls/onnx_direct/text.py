"""An encoder as ONNX text, one operator a line.

Shapes: B batch, S sequence, D d_model, H num_heads, d = D / H, F d_ff. Values bear the names of stages, and parameters
the specification's; in a stack, each layer's begin with its prefix. The constants are initializers too.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

from encoder_conformance import Tensors, shows_inside, stack_of
from encoder_conformance.impls.onnx_direct.constants import constants_of
from encoder_conformance.spec.plan import Step, plan, with_attributes

SHARED = ("x", "mask", "valid", "bias", "has_key", "needed")
"""Values that are the same for each layer of a stack. Constants are, too."""
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "quick_gelu")

Lines = list[str]


@dataclass(frozen=True)
class Form:
    """The layer to write, and the operators to write it with."""

    layer: Mapping[str, Any]
    dtype: str
    opset: int
    biased: bool
    """Whether `bias` is added to the scores."""
    attend: Callable[["Form"], Lines]
    """The lines from query_heads, key_heads and value_heads to context."""
    norm: Callable[["Form", str, str, str], Lines]
    """The lines of a norm, given the names of its input, of its output and of its parameters."""

    @property
    def attention(self) -> Mapping[str, Any]:
        return self.layer["attention"]

    @property
    def has_gelu(self) -> bool:
        """From opset 20 on GELU is an operator. In float64 it is better written out: ONNX Runtime takes the operator's
        definition, whose √2 and √(2/π) are float32 (onnx/onnx, onnx/defs/math/defs.cc)."""
        return self.opset >= 20 and self.dtype != "float64"


def encoder(form: Form, parameters: Tensors) -> onnx.ModelProto:
    """The staged model (impls/bases/onnx_model/contract.py). Raises ValueError for a layer that cannot be."""
    check(form.layer)
    layer, inside = form.layer, stages(form)
    constants = constants_of(layer, np.dtype(form.dtype))
    stacked, lines, outputs, x = stack_of(layer), masks(form), [], "x"
    if not stacked:
        lines += layer_lines(form, x)
        outputs += inside
        x = outputs[-1]
    else:
        if layer["embedding"]:
            lines += embedding(layer)
            outputs.append(x := "embedded")
        for number in range(stacked["layers"]):
            prefix, shared = f"layers.{number}.", {*SHARED, *constants}
            lines += [quoted(line, prefix, shared, {"input": x}) for line in layer_lines(form, "input")]
            if shows_inside(stacked["layers"]):
                outputs += [f"layer_{number}.{stage}" for stage in inside]
                lines += [f"layer_{number}.{stage} = Identity({prefix}{stage})" for stage in inside]
            outputs.append(x := f"layer_{number}")
            lines.append(f"{x} = Identity({prefix}{inside[-1]})")
        if stacked["final_norm"]:
            lines += form.norm(form, x, "final_norm", "final_norm")
            outputs.append(x := "final_norm")
    lines.append(f"output = Identity({x})")
    body = "\n".join(quoted(line) for line in lines)
    model: onnx.ModelProto = onnx.parser.parse_model(f"{header(form, [*outputs, 'output'])}{body}}}")
    used = {name for node in model.graph.node for name in node.input}
    given = {name: value for name, value in {**parameters, **constants}.items() if name in used}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in given.items())
    return model


def quoted(
    line: str, prefix: str = "", shared: Collection[str] = (), also: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The line with each value's name in quotes, after the prefix unless it is shared. Operators begin with a capital,
    and attributes stand between < and >."""

    def name(found: re.Match[str]) -> str:
        value = found[0]
        if value.startswith(("<", '"')):
            return value
        return f'"{also[value] if value in also else value if value in shared else prefix + value}"'

    return re.sub(r'<[^>]*>|"[^"]*"|\b[a-z]\w*(\.\w+)*', name, line)


def header(form: Form, outputs: list[str]) -> str:
    layer, heads = form.layer, form.attention["num_heads"]
    kind = {"float64": "double", "float32": "float", "float16": "float16"}[form.dtype]
    scores = f"[batch, {heads}, sequence, sequence]"
    x = "int64[batch, sequence] x" if layer["embedding"] else f"{kind}[batch, sequence, {layer['d_model']}] x"
    given = [x, f"bool{scores} mask", "bool[batch, sequence] valid", *([f"{kind}{scores} bias"] if form.biased else [])]
    ir_version = helper.find_min_ir_version_for([helper.make_opsetid("", form.opset)])
    return (
        f'<ir_version: {ir_version}, opset_import: ["": {form.opset}], producer_name: "encoder-conformance">\n'
        f"encoder ({', '.join(given)}) => ({', '.join(f'{kind}[] {quoted(name)}' for name in outputs)}) {{\n"
    )


def masks(form: Form) -> Lines:
    """has_key [B, H, S, 1], true for a query that has a key to attend to; needed [B, S, 1], false at padding that
    nothing is to be computed with: a weight of 0 keeps out neither what overflows nor NaN. Uniform weights over every
    key are no 0: an item with a query that has no key keeps its padding."""
    lines = [
        "mask_number = Cast <to = 1> (mask)",
        reduced(form, "key_number", "ReduceMax", "mask_number", last=True),
        "has_key = Cast <to = 9> (key_number)",
    ]
    kept = "valid"
    if form.attention["fully_masked_row"] == "uniform":
        lines += [
            reduced(form, "item_number", "ReduceMin", "key_number", last=False),
            "item_has_keys = Cast <to = 9> (item_number)",
            "item_has_none = Not(item_has_keys)",
            "item_keeps = Reshape(item_has_none, column_shape)",
            "kept = Or(valid, item_keeps)",
        ]
        kept = "kept"
    return [*lines, f"needed = Unsqueeze({kept}, last_axis)"]


def embedding(layer: Mapping[str, Any]) -> Lines:
    if layer["embedding"]["positions"] == "none":
        return ["embedded = Gather <axis = 0> (embedding.weight, x)"]
    return [
        "tokens = Gather <axis = 0> (embedding.weight, x)",
        "sequence_size = Shape <start = 1, end = 2> (x)",
        "sequence_length = Squeeze(sequence_size)",
        "positions = Range(first, sequence_length, next)",
        "place = CastLike(positions, nought)",
        "column = Unsqueeze(place, last_axis)",
        "angles = Mul(column, rates)",  # [S, D / 2, rounded up]
        "sine = Sin(angles)",
        "cosine = Cos(angles)",
        "sine_last = Unsqueeze(sine, last_axis)",
        "cosine_last = Unsqueeze(cosine, last_axis)",
        "waves = Concat <axis = -1> (sine_last, cosine_last)",
        "features = Reshape(waves, pairs)",
        "added_positions = Slice(features, nothing, width, second_axis)",
        "embedded = Add(tokens, added_positions)",
    ]


def layer_lines(form: Form, x: str) -> Lines:
    """From x to the last residual sum, or to the norm of it: the plan of the layer, each step in its operators."""
    lines = [f"data = Where(needed, {x}, nought)"]
    for step in plan(with_attributes(form.layer)):
        reads = ["data" if name == "x" else name for name in step.reads]
        lines += _LINES[step.form](form, step, *reads)
    return lines


def stages(form: Form) -> list[str]:
    """The stages of a layer, without its output, which is the last of them."""
    return [step.makes for step in plan(with_attributes(form.layer)) if step.shown and step.makes != "output"]


def projection(form: Form, step: Step, x: str) -> Lines:
    """Query, key or value of x, [B, S, D]."""
    if step.right != "shared_by_heads":
        return linear(form, step, x)
    by_heads = replace(step, makes=f"{step.makes}_by_heads")
    return [
        f"{step.makes}_input = Reshape({x}, split)",
        *linear(form, by_heads, f"{step.makes}_input"),
        f"{step.makes} = Reshape({by_heads.makes}, merged)",
    ]


def split_heads(form: Form, step: Step, x: str) -> Lines:
    """[B, S, D] → [B, H, S, d]."""
    split = f"{step.makes}_split"
    return [f"{split} = Reshape({x}, split)", f"{step.makes} = Transpose <perm = [0, 2, 1, 3]> ({split})"]


def merge_heads(form: Form, step: Step, x: str) -> Lines:
    """[B, H, S, d] → [B, S, D]."""
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
    return [*inside, "gate = Add(bent, one)", f"gated = Mul({x}, gate)", f"{y} = Mul(gated, half)"]


def reduced(form: Form, y: str, operator: str, x: str, *, last: bool) -> str:
    """Along the last axis, which stays with size 1, or along all but the first. In opset 17 axes are an attribute."""
    keep, axes, listed = (1, "last_axis", [-1]) if last else (0, "inner_axes", [1, 2, 3])
    if form.opset >= 18:
        return f"{y} = {operator} <keepdims = {keep}> ({x}, {axes})"
    return f"{y} = {operator} <keepdims = {keep}, axes = {listed}> ({x})"


def check(layer: Mapping[str, Any]) -> None:
    D, H, activation = layer["d_model"], layer["attention"]["num_heads"], layer["feed_forward"]["activation"]
    if D % H:
        raise ValueError(f"d_model = {D} is not divisible by num_heads = {H}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation = {activation!r}, not one of {', '.join(ACTIVATIONS)}")


def _nothing(form: Form, step: Step, *reads: str) -> Lines:
    """A step that another writes, or that passes on what it reads as the output."""
    return []


_LINES: Mapping[str, Callable[..., Lines]] = {
    "norm": lambda form, step, x: form.norm(form, x, step.makes, step.owner),
    "projection": projection,
    "split_heads": split_heads,
    **dict.fromkeys(("scores", "bias", "softmax", "end", "same"), _nothing),
    "attend": lambda form, step, *reads: form.attend(form),
    "merge_heads": merge_heads,
    "linear": linear,
    "activation": activation,
    "after_ffn": lambda form, step, x: [f"{step.makes} = Identity({x})"],
    "sum": lambda form, step, x, branch: [f"{step.makes} = Add({x}, {branch})"],
}
"""Form of a step → its lines."""
