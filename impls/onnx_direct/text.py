"""An encoder as ONNX text, one operator a line.

Shapes: B batch, S sequence, D d_model, H num_heads, d = D / H, F d_ff. Values bear the names of stages, and parameters
the specification's; in a stack, each layer's begin with its prefix. The constants are initializers too.
"""

import math
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

from harness.adapter import Tensors, stack_of
from harness.adapter.base import Array

SHARED = ("x", "mask", "valid", "bias", "has_key", "needed")
"""Values that are the same for each layer of a stack. Constants are, too."""
ATTENTION_STAGES = (
    "query", "key", "value", "query_heads", "key_heads", "value_heads",
    "attention_scores", "attention_weights", "context", "context_merged", "attention_output",
)  # fmt: skip
FEED_FORWARD_STAGES = ("ffn_hidden", "ffn_activation", "ffn_output")
STAGES = {
    "pre": ("norm1", *ATTENTION_STAGES, "residual1", "norm2", *FEED_FORWARD_STAGES, "residual2"),
    "post": (*ATTENTION_STAGES, "residual1", "norm1", *FEED_FORWARD_STAGES, "residual2", "norm2"),
}
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")

Lines = list[str]
Attend = Callable[[Mapping[str, Any], int, bool], Lines]
"""The lines from query_heads, key_heads and value_heads to context: of a layer, an opset, and whether there is a bias."""
Norm = Callable[[Mapping[str, Any], int, str, str, str], Lines]
"""The lines of a norm: of a layer, an opset, and the names of its input, of its output and of its parameters."""


def encoder(
    layer: Mapping[str, Any],
    parameters: Tensors,
    dtype: str,
    opset: int,
    *,
    biased: bool,
    attend: Attend,
    norm: Norm,
) -> onnx.ModelProto:
    """The staged model (`impls.onnx_model.contract`). Raises ValueError for a layer that cannot be."""
    check(layer)
    constants = constants_of(layer, np.dtype(dtype))
    stacked, lines, outputs, x = stack_of(layer), [*masks(layer, opset)], [], "x"
    shared = {*SHARED, *constants}
    if not stacked:
        lines += layer_lines(layer, opset, x, biased=biased, attend=attend, norm=norm)
        outputs += STAGES[layer["norm"]["placement"]]
        x = outputs[-1]
    else:
        if layer["embedding"]:
            lines += embedding(layer)
            outputs.append(x := "embedded")
        for number in range(stacked["layers"]):
            own = layer_lines(layer, opset, "input", biased=biased, attend=attend, norm=norm)
            of_layer = {"input": x}
            lines += [quoted(line, f"layers.{number}.", shared, of_layer) for line in own]
            last = f"layers.{number}.{STAGES[layer['norm']['placement']][-1]}"
            outputs.append(x := f"layer_{number}")
            lines.append(f"{x} = Identity({last})")
        if stacked["final_norm"]:
            lines += norm(layer, opset, x, "final_norm", "final_norm")
            outputs.append(x := "final_norm")
    lines.append(f"output = Identity({x})")
    body = "\n".join(quoted(line) for line in lines)
    begun = header(layer, dtype, opset, [*outputs, "output"], biased)
    model: onnx.ModelProto = onnx.parser.parse_model(f"{begun}{body}}}")
    used = {name for node in model.graph.node for name in node.input}
    for name, value in {**parameters, **constants}.items():
        if name in used:
            model.graph.initializer.append(numpy_helper.from_array(value, name))
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


def header(layer: Mapping[str, Any], dtype: str, opset: int, outputs: list[str], biased: bool) -> str:
    kind, heads = (
        {"float64": "double", "float32": "float", "float16": "float16"}[dtype],
        layer["attention"]["num_heads"],
    )
    scores = f"[batch, {heads}, sequence, sequence]"
    x = "int64[batch, sequence] x" if layer["embedding"] else f"{kind}[batch, sequence, {layer['d_model']}] x"
    given = [x, f"bool{scores} mask", "bool[batch, sequence] valid", *([f"{kind}{scores} bias"] if biased else [])]
    ir_version = helper.find_min_ir_version_for([helper.make_opsetid("", opset)])
    return (
        f'<ir_version: {ir_version}, opset_import: ["": {opset}], producer_name: "encoder-conformance">\n'
        f"encoder ({', '.join(given)}) => ({', '.join(f'{kind}[] {name}' for name in outputs)}) {{\n"
    )


def constants_of(layer: Mapping[str, Any], dtype: np.dtype) -> dict[str, Array]:
    """By name: numbers in the layer's dtype, axes and shapes."""
    D, attention = layer["d_model"], layer["attention"]
    H, filled = attention["num_heads"], attention["masked_score"]
    least = max(float(ml_dtypes.finfo(dtype).min), float(np.finfo(np.float32).min))
    rates = np.exp(-math.log(10000) / D * np.arange(0, D, 2))
    numbers = {
        "root": math.sqrt(D if attention["scale"] == "d_model" else D // H),
        "unit_scale": 1 / math.sqrt(D if attention["scale"] == "d_model" else D // H),
        "filled": least if filled == "minus_infinity" else max(filled, least),
        "infinite": -math.inf,
        "undefined": math.nan,
        "epsilon": layer["norm"]["epsilon"],
        "nought": 0,
        "half": 0.5,
        "one": 1,
        "root_two": math.sqrt(2),
        "cubic": 0.044715,
        "root_two_by_pi": math.sqrt(2 / math.pi),
        "rates": rates,
    }
    shapes = {
        "last_axis": [-1],
        "inner_axes": [1, 2, 3],
        "second_axis": [1],
        "split": [0, 0, H, D // H],
        "merged": [0, 0, D],
        "pairs": [0, -1],
        "nothing": [0],
        "width": [D],
    }
    scalars = {"first": 0, "next": 1}
    return {
        **{name: np.array(value, dtype) for name, value in numbers.items()},
        **{name: np.array(value, np.int64) for name, value in {**shapes, **scalars}.items()},
    }


def masks(layer: Mapping[str, Any], opset: int) -> Lines:
    """has_key [B, H, S, 1], true for a query that has a key to attend to; needed [B, S, 1], false at padding that
    nothing is to be computed with: a weight of 0 keeps out neither what overflows nor NaN. Uniform weights over every key
    are no 0: an item with a query that has no key keeps its padding."""
    lines = [
        "mask_number = Cast <to = 1> (mask)",
        reduced("key_number", "ReduceMax", "mask_number", "last_axis", -1, opset),
        "has_key = Cast <to = 9> (key_number)",
    ]
    kept = "valid"
    if layer["attention"]["fully_masked_row"] == "uniform":
        lines += [
            "item_number = ReduceMin <keepdims = 0> (key_number, inner_axes)" if opset >= 18 else
            "item_number = ReduceMin <keepdims = 0, axes = [1, 2, 3]> (key_number)",
            "item_has_keys = Cast <to = 9> (item_number)",
            "item_has_none = Not(item_has_keys)",
            "item_keeps = Unsqueeze(item_has_none, second_axis)",
            "kept = Or(valid, item_keeps)",
        ]  # fmt: skip
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


def layer_lines(layer: Mapping[str, Any], opset: int, x: str, *, biased: bool, attend: Attend, norm: Norm) -> Lines:
    """From x to the last residual sum, or to the norm of it."""
    attention = [*heads(layer), *attend(layer, opset, biased), *merged(layer)]
    begun = [f"data = Where(needed, {x}, nought)"]
    if layer["norm"]["placement"] == "pre":
        return [
            *begun,
            *norm(layer, opset, "data", "norm1", "norm1"),
            *(line.replace("SUBLAYER", "norm1") for line in attention),
            "residual1 = Add(data, attention_output)",
            *norm(layer, opset, "residual1", "norm2", "norm2"),
            *feed_forward(layer, opset, "norm2"),
            "residual2 = Add(residual1, ffn_output)",
        ]
    return [
        *begun,
        *(line.replace("SUBLAYER", "data") for line in attention),
        "residual1 = Add(data, attention_output)",
        *norm(layer, opset, "residual1", "norm1", "norm1"),
        *feed_forward(layer, opset, "norm1"),
        "residual2 = Add(norm1, ffn_output)",
        *norm(layer, opset, "residual2", "norm2", "norm2"),
    ]


def heads(layer: Mapping[str, Any]) -> Lines:
    """Query, key and value of SUBLAYER, [B, S, D], and their heads [B, H, S, d]."""
    lines, biased = [], layer["attention"]["qkv_bias"]
    shared = layer["attention"]["projections"] == "shared_by_heads"
    if shared:
        lines.append("input_split = Reshape(SUBLAYER, split)")
    for name in ("query", "key", "value"):
        if shared:
            lines += [
                *linear("input_split", f"attention.{name}", f"{name}_split", biased),
                f"{name} = Reshape({name}_split, merged)",
            ]
        else:
            lines += [
                *linear("SUBLAYER", f"attention.{name}", name, biased),
                f"{name}_split = Reshape({name}, split)",
            ]
        lines.append(f"{name}_heads = Transpose <perm = [0, 2, 1, 3]> ({name}_split)")
    return lines


def merged(layer: Mapping[str, Any]) -> Lines:
    return [
        "context_split = Transpose <perm = [0, 2, 1, 3]> (context)",
        "context_merged = Reshape(context_split, merged)",
        *linear("context_merged", "attention.output", "attention_output", layer["attention"]["output_bias"]),
    ]


def linear(x: str, name: str, y: str, biased: bool) -> Lines:
    if not biased:
        return [f"{y} = MatMul({x}, {name}.weight)"]
    return [f"{y}_product = MatMul({x}, {name}.weight)", f"{y} = Add({y}_product, {name}.bias)"]


def feed_forward(layer: Mapping[str, Any], opset: int, x: str) -> Lines:
    biased = layer["feed_forward"]["bias"]
    return [
        *linear(x, "feed_forward.hidden", "ffn_hidden", biased),
        *activation(layer["feed_forward"]["activation"], opset),
        *linear("ffn_activation", "feed_forward.output", "ffn_output", biased),
    ]


def activation(name: str, opset: int) -> Lines:
    """Of ffn_hidden. GELU is an operator from opset 20 on."""
    if name == "relu":
        return ["ffn_activation = Relu(ffn_hidden)"]
    if name == "silu":
        return ["sigmoid = Sigmoid(ffn_hidden)", "ffn_activation = Mul(ffn_hidden, sigmoid)"]
    if opset >= 20:
        kind = "tanh" if name == "gelu_tanh" else "none"
        return [f'ffn_activation = Gelu <approximate = "{kind}"> (ffn_hidden)']
    if name == "gelu":
        inside = ["scaled = Div(ffn_hidden, root_two)", "bent = Erf(scaled)"]
    else:
        inside = [
            "square = Mul(ffn_hidden, ffn_hidden)",
            "cube = Mul(square, ffn_hidden)",
            "cubic_term = Mul(cube, cubic)",
            "polynomial = Add(ffn_hidden, cubic_term)",
            "scaled = Mul(polynomial, root_two_by_pi)",
            "bent = Tanh(scaled)",
        ]
    return [
        *inside,
        "gate = Add(bent, one)",
        "gated = Mul(ffn_hidden, gate)",
        "ffn_activation = Mul(gated, half)",
    ]


def reduced(y: str, operator: str, x: str, axes: str, axis: int, opset: int) -> str:
    """Along one axis, which stays with size 1. Until opset 17 the axes are an attribute."""
    if opset >= 18:
        return f"{y} = {operator} <keepdims = 1> ({x}, {axes})"
    return f"{y} = {operator} <keepdims = 1, axes = [{axis}]> ({x})"


def check(layer: Mapping[str, Any]) -> None:
    D, H, activation = layer["d_model"], layer["attention"]["num_heads"], layer["feed_forward"]["activation"]
    if D % H:
        raise ValueError(f"d_model = {D} is not divisible by num_heads = {H}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation = {activation!r}, not one of {', '.join(ACTIVATIONS)}")
