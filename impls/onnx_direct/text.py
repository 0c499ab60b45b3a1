"""An encoder as ONNX text, one operator a line.

Shapes: B batch, S sequence, D d_model, H num_heads, d = D / H, F d_ff. Values bear the names of stages, and parameters
the specification's; in a stack, each layer's begin with its prefix. The constants are initializers too.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

from encoder_conformance import Tensors, shows_inside, stack_of
from encoder_conformance.impls.bases.onnx_model.inputs import takes_ids, takes_types
from encoder_conformance.impls.onnx_direct.constants import constants_of
from encoder_conformance.impls.onnx_direct.form import Form, Lines, reduced
from encoder_conformance.impls.onnx_direct.positional import SHARED as OF_POSITIONS
from encoder_conformance.impls.onnx_direct.positional import angles, places
from encoder_conformance.impls.onnx_direct.steps import LINES, OF_EMBEDDING
from encoder_conformance.spec.plan import stack_plan

SHARED = ("x", "token_types", "mask", "valid", "bias", "has_key", "needed")
"""Values that are the same for each layer of a stack. Constants are, too."""
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "quick_gelu")


def encoder(form: Form, parameters: Tensors) -> onnx.ModelProto:
    """The staged model (impls/bases/onnx_model/contract.py). Raises ValueError for a layer that cannot be."""
    check(form.layer)
    layer, constants = form.layer, constants_of(form.layer, np.dtype(form.dtype))
    lines, outputs = [*masks(form), *places(form)], list[str]()
    if stack_of(layer):
        x = stack_lines(form, {*SHARED, *OF_POSITIONS, *constants}, lines, outputs)
    else:
        lines += layer_lines(form, "x")
        outputs += stages(form)
        x = outputs[-1]
    lines.append(f"output = Identity({x})")
    body = "\n".join(quoted(line) for line in lines)
    model: onnx.ModelProto = onnx.parser.parse_model(f"{header(form, [*outputs, 'output'])}{body}}}")
    used = {name for node in model.graph.node for name in node.input}
    given = {name: value for name, value in {**parameters, **constants}.items() if name in used}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in given.items())
    return model


def stack_lines(form: Form, shared: Collection[str], lines: Lines, outputs: list[str]) -> str:
    """Adds those of an embedding, of every layer and of a final norm; the name of what the last of them makes."""
    stacked, x = stack_of(form.layer), "x"
    if form.layer["embedding"]:
        lines += embedding(form)
        outputs += embedded_stages(form)
        x = "embedded"
    for number in range(stacked["layers"]):
        own, prefix = form.of_number(number), f"layers.{number}."
        given = {"input": x}
        if stacked.get("shared_position_bias"):
            given["position_numbers"] = "layers.0.position_numbers"
        lines += [quoted(line, prefix, shared, given) for line in layer_lines(own, "input")]
        inside = stages(own)
        if shows_inside(stacked["layers"]):
            outputs += [f"layer_{number}.{stage}" for stage in inside]
            lines += [f"layer_{number}.{stage} = Identity({prefix}{stage})" for stage in inside]
        outputs.append(x := f"layer_{number}")
        lines.append(f"{x} = Identity({prefix}{inside[-1]})")
    if stacked["final_norm"]:
        [step] = (step for step in stack_plan(form.described) if step.form == "stack_norm")
        lines += form.norm(form, replace(step, reads=(x,)))
        outputs.append(x := "final_norm")
    return x


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
    x = "int64[batch, sequence] x" if takes_ids(layer) else f"{kind}[batch, sequence, {layer['d_model']}] x"
    typed = ["int64[batch, sequence] token_types"] if takes_types(layer) else []
    bias = [f"{kind}{scores} bias"] if form.biased else []
    given = [x, *typed, f"bool{scores} mask", "bool[batch, sequence] valid", *bias]
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


def embedding(form: Form) -> Lines:
    """From token ids, or x, to what the first layer takes: each step before the layers in its operators."""
    steps = stack_plan(form.described)
    return [
        line
        for step in steps[: next(number for number, step in enumerate(steps) if step.form == "layers")]
        if step.form in OF_EMBEDDING
        for line in OF_EMBEDDING[step.form](form, step, *step.reads)
    ]


def embedded_stages(form: Form) -> list[str]:
    """The stages before the first layer."""
    return [
        step.makes for step in stack_plan(form.described) if step.shown and step.makes in ("embedding_sum", "embedded")
    ]


def layer_lines(form: Form, x: str) -> Lines:
    """From x to the last residual sum, or to the norm of it: the plan of the layer, each step in its operators."""
    lines = [f"data = Where(needed, {x}, nought)", *angles(form)]
    for step in form.steps:
        reads = ["data" if name == "x" else name for name in step.reads]
        lines += LINES[step.form](form, step, *reads)
    return lines


def stages(form: Form) -> list[str]:
    """The stages of a layer, without its output, which is the last of them."""
    return [step.makes for step in form.steps if step.shown and step.makes != "output"]


def check(layer: Mapping[str, Any]) -> None:
    D, H, activation = layer["d_model"], layer["attention"]["num_heads"], layer["feed_forward"]["activation"]
    if D % H and layer["attention"].get("head_dim") is None:
        raise ValueError(f"d_model = {D} is not divisible by num_heads = {H}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation = {activation!r}, not one of {', '.join(ACTIVATIONS)}")
