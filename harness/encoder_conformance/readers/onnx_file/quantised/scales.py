"""Which scales of a file are none: a number that is 0, infinite or NaN stands for no integer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.integers import cast_weights
from encoder_conformance.readers.onnx_file.graph.nodes import input_at, node_label
from encoder_conformance.spec.axes import Array

_TAKEN = {
    "DequantizeLinear": (1,), "QLinearMatMul": (1, 4), "QLinearConv": (1, 4), "QLinearAdd": (1, 4),
    "QLinearMul": (1, 4), "QLinearSoftmax": (1,), "QLinearSigmoid": (1,), "QLinearLeakyRelu": (1,),
    "QLinearReduceMean": (1,), "QLinearAveragePool": (1,), "QLinearGlobalAveragePool": (1,), "QGemm": (1, 4),
    "QAttention": (3, 4), "QEmbedLayerNormalization": (8, 9, 10, 11, 12), "DynamicQuantizeMatMul": (2,),
    "MatMulIntegerToFloat": (2, 3), "MatMulNBits": (2,), "GatherBlockQuantized": (2,),
}  # fmt: skip
"""Operator → the places among its inputs of the scales by which it reads integers."""
_ROUNDING = {
    "QuantizeLinear": (1,), "QLinearMatMul": (6,), "QLinearConv": (6,), "QLinearAdd": (6,), "QLinearMul": (6,),
    "QLinearSoftmax": (3,), "QLinearSigmoid": (3,), "QLinearLeakyRelu": (3,), "QLinearReduceMean": (3,),
    "QLinearAveragePool": (3,), "QLinearGlobalAveragePool": (3,), "QLinearConcat": (0,), "QGemm": (7,),
}  # fmt: skip
"""Operator → the places of the scales by which it rounds numbers to integers, as they come."""
_PRODUCTS = ("MatMulInteger", "ConvInteger")
"""Products of integers whose scale is a factor behind them."""
_PASSING = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")
_SHOWN = 3
Held = Mapping[str, TensorProto]
Makers = Mapping[str, onnx.NodeProto]


def check_scales(model: onnx.ModelProto, findings: Findings) -> bool:
    """Whether every scale that the file holds is a number other than 0; the others are errors, each with its place. A
    weight's may be negative: ONNX Runtime's 4 bits have -8 and no 8, the largest number's sign is the scale's."""
    wrong: dict[str, tuple[str, list[str]]] = {}
    for scale, node, rounds in _scales(model.graph):
        if problem := _no_scale(numpy_helper.to_array(scale), rounds=rounds):
            wrong.setdefault(scale.name, (problem, []))[1].append(node_label(node))
    for name, (problem, nodes) in wrong.items():
        more = f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
        message = f"the scale {name!r} of {', '.join(nodes[:_SHOWN])}{more} {problem}"
        hint = "quantise it again: no numbers were seen there, or the file was edited"
        findings.error("reduction", "scale-unusable", message, hint, scale=name, nodes=nodes)
    return not wrong


def scale_behind(node: onnx.NodeProto, nodes: Sequence[onnx.NodeProto], held: Held) -> TensorProto | None:
    """The scale of the matrix of a product of integers: the constant factor behind it."""
    makers = {output: each for each in nodes for output in each.output}
    return next(_factors(node, nodes, held, makers), None)


def _scales(graph: onnx.GraphProto) -> Iterator[tuple[TensorProto, onnx.NodeProto, bool]]:
    """Each scale that the file holds, a node that takes it, and whether that rounds by it."""
    held = {tensor.name: tensor for tensor in graph.initializer}
    makers = {output: node for node in graph.node for output in node.output}
    read_back = cast_weights(graph)
    for node in graph.node:
        rounds = _ROUNDING.get(node.op_type, ())
        taken = _TAKEN.get(node.op_type, ())
        if node.op_type == "QLinearConcat":  # of a scale for what it gives, and of triples for what it takes
            taken = tuple(range(3, len(node.input), 3))
        for place in (*taken, *rounds):
            if (scale := _constant(input_at(node, place), held, makers)) is not None:
                yield scale, node, place in rounds
        if node.op_type in _PRODUCTS:
            yield from ((scale, node, False) for scale in _factors(node, graph.node, held, makers))
        elif node.output and node.output[0] in read_back:
            yield read_back[node.output[0]][1], node, False


def _factors(
    product: onnx.NodeProto, nodes: Sequence[onnx.NodeProto], held: Held, makers: Makers
) -> Iterator[TensorProto]:
    """The constants that the sums of a product with a constant matrix are multiplied by first; what they are multiplied
    by later is no scale. The scales of both operands may have been multiplied before, or come one by one."""
    if held.keys().isdisjoint(product.input[:2]):
        return
    behind = {product.output[0]}
    for node in nodes:
        if node.op_type == "Cast" and node.input[0] in behind:
            behind.add(node.output[0])
        elif node.op_type == "Mul" and not behind.isdisjoint(node.input):
            behind.add(node.output[0])
            found = [*_constant_factors([name for name in node.input if name not in behind], held, makers)]
            yield from found
            if found:
                return


def _constant_factors(names: Iterable[str], held: Held, makers: Makers) -> Iterator[TensorProto]:
    """Those among these values, and among what they are the products of."""
    for name in names:
        if (scale := _constant(name, held, makers)) is not None:
            yield scale
        elif name in makers and makers[name].op_type == "Mul":
            yield from _constant_factors(makers[name].input, held, makers)


def _constant(name: str, held: Held, makers: Makers) -> TensorProto | None:
    """The initializer that a value is, in another format or shape at most."""
    while name not in held and name in makers and makers[name].op_type in _PASSING:
        name = makers[name].input[0]
    return held.get(name)


def _no_scale(value: Array, *, rounds: bool) -> str:
    """Why it is none; "" if it is one. `rounds`: numbers to integers, as they come."""
    numbers = value.astype(np.float64).ravel()
    for bad, what in ((~np.isfinite(numbers), "no number"), (numbers == 0, "0"), (rounds & (numbers < 0), "negative")):
        if bad.any():
            place = f" at {int(np.flatnonzero(bad)[0])}" if numbers.size > 1 else ""
            return f"is {what}{place}"
    return ""
