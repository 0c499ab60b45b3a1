"""How a file is quantised: where its integers are, with how many scales, and which scales are none."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from encoder_conformance.protocol.quantised import IntegerWeights, Quantisation
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.integers import cast_weights
from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, input_at, node_label
from encoder_conformance.spec.axes import Array

_SCALES = {
    "QuantizeLinear": (1,), "DequantizeLinear": (1,), "QLinearMatMul": (1, 4, 6), "QLinearConv": (1, 4, 6),
    "QLinearAdd": (1, 4, 6), "QLinearMul": (1, 4, 6), "QAttention": (3, 4), "DynamicQuantizeMatMul": (2,),
    "MatMulIntegerToFloat": (2, 3), "MatMulNBits": (2,),
}  # fmt: skip
"""Operator → the places of its scales among its inputs."""
_PRODUCTS = {
    "MatMulInteger": (1, None), "ConvInteger": (1, None), "DynamicQuantizeMatMul": (1, 2),
    "MatMulIntegerToFloat": (1, 3), "QAttention": (1, 4), "QLinearMatMul": (3, 4), "QLinearConv": (3, 4),
    "MatMulNBits": (1, 2),
}  # fmt: skip
"""A product of integers → the places of its weight and of that's scale."""
_SHOWN = 3


def quantisation(model: onnx.ModelProto) -> Quantisation | None:
    """None for a file without integer weights that rounds no activation. Constant nodes are initializers already."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    weights = Counter(_weights(model.graph, held))
    static = [node for node in model.graph.node if node.op_type == "QuantizeLinear" and node.input[0] not in held]
    dynamic = [node for node in model.graph.node if node.op_type in ("DynamicQuantizeLinear", "DynamicQuantizeMatMul")]
    if not (weights or static or dynamic):
        return None
    return Quantisation(
        weights=tuple(
            IntegerWeights(form=each[0], stored=each[1], scales=each[2], count=n) for each, n in weights.items()
        ),
        static=len(static),
        dynamic=len(dynamic),
    )


def _weights(graph: onnx.GraphProto, held: dict[str, TensorProto]) -> Iterator[tuple[str, str, str]]:
    """(Form, format, scales) of each matrix and vector that is stored as integers."""
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in held:
            yield "QDQ", _format(held[node.input[0]]), _scales(held.get(node.input[1]), attributes_of(node))
        elif node.op_type in _PRODUCTS:
            weight, scale = _PRODUCTS[node.op_type]
            if (name := input_at(node, weight)) in held:
                by = held.get(input_at(node, scale)) if scale is not None else _scale_of(node, graph, held)
                attributes = attributes_of(node)
                stored = f"uint{attributes['bits']}" if "bits" in attributes else _format(held[name])
                yield node.op_type, stored, _scales(by, attributes)
    for weight, by in cast_weights(graph).values():
        yield "Cast · Mul", _format(weight), _scales(by, {})


def _format(tensor: TensorProto) -> str:
    return str(TensorProto.DataType.Name(tensor.data_type).lower())


def _scales(scale: TensorProto | None, attributes: dict[str, object]) -> str:
    if attributes.get("block_size"):
        return "by block"
    if scale is None:
        return "by scales that are computed"
    return "by tensor" if int(np.prod(scale.dims)) <= 1 else "by channel"


def _scale_of(node: onnx.NodeProto, graph: onnx.GraphProto, held: dict[str, TensorProto]) -> TensorProto | None:
    """The scale of the matrix of a MatMulInteger: the constant factor behind it."""
    behind, makers = {node.output[0]}, {output: each for each in graph.node for output in each.output}
    for each in graph.node:
        if each.op_type == "Cast" and each.input[0] in behind:
            behind.add(each.output[0])
        elif each.op_type == "Mul" and not behind.isdisjoint(each.input):
            factor = next(name for name in each.input if name not in behind) if len({*each.input}) > 1 else ""
            named = [factor, *(makers[factor].input if factor in makers else ())]
            return next((held[name] for name in named if name in held), None)
    return None


def check_scales(model: onnx.ModelProto, findings: Findings) -> bool:
    """Whether every scale that the file holds is a number other than 0; the others are errors, each with its place. A
    weight's may be negative: ONNX Runtime's 4 bits have -8 and no 8, the largest number's sign is the scale's."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    wrong: dict[str, tuple[str, list[str]]] = {}
    for node in model.graph.node:
        for place in _SCALES.get(node.op_type, ()):
            name = input_at(node, place)
            if not name or name not in held:
                continue
            if problem := _no_scale(numpy_helper.to_array(held[name]), rounds=node.op_type == "QuantizeLinear"):
                wrong.setdefault(name, (problem, []))[1].append(node_label(node))
    for name, (problem, nodes) in wrong.items():
        more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
        message = f"the scale {name!r} of {', '.join(nodes[:_SHOWN])}{more} {problem}"
        hint = "quantise it again: no numbers were seen there, or the file was edited"
        findings.error("reduction", "scale-unusable", message, hint, scale=name, nodes=nodes)
    return not wrong


def _no_scale(value: Array, *, rounds: bool) -> str:
    """Why it is none; "" if it is one. `rounds`: numbers to integers, as they come."""
    numbers = value.astype(np.float64).ravel()
    for bad, what in ((~np.isfinite(numbers), "no number"), (numbers == 0, "0"), (rounds & (numbers < 0), "negative")):
        if bad.any():
            place = f" at {int(np.flatnonzero(bad)[0])}" if numbers.size > 1 else ""
            return f"is {what}{place}"
    return ""
