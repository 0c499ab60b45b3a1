"""Lowers ONNX Runtime's fused and quantised operators to ONNX's own, so that the graph can be traced.

Only the traced copy changes; the file that runs stays as it is. Integer weights become the real numbers that they
stand for, and the rounding of activations is left out. A run then shows how far that is from the file.
"""

from collections.abc import Callable
from math import sqrt

import numpy as np
import onnx
from onnx import helper, numpy_helper

MICROSOFT = "com.microsoft"
ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear")
Nodes = list[onnx.NodeProto]


def lower(graph: onnx.GraphProto) -> None:
    """In place; Constant nodes are initializers already."""
    kept: Nodes = []
    for node in graph.node:
        lowering = LOWERINGS.get(node.op_type) if node.domain == MICROSOFT else None
        kept += lowering(node, graph) if lowering else [node]
    kept = _without_rounding(kept, graph)
    del graph.node[:]
    graph.node.extend(kept)


def is_quantised(graph: onnx.GraphProto) -> bool:
    """Whether the graph computes with integers that stand for real numbers."""
    return any(node.op_type in ROUNDING for node in graph.node)


def _attribute(node: onnx.NodeProto, name: str, default: float) -> float:
    return next((attribute.f for attribute in node.attribute if attribute.name == name), default)


def _constant(graph: onnx.GraphProto, name: str, value: np.ndarray) -> str:
    graph.initializer.append(numpy_helper.from_array(value, name))
    return name


def _number(graph: onnx.GraphProto, name: str, value: float) -> str:
    return _constant(graph, name, np.array(value, np.float32))


def _skip_norm(node: onnx.NodeProto, graph: onnx.GraphProto) -> Nodes:
    """(x + skip + bias) normed; the sum is the fourth output."""
    inputs, simplified = list(node.input), "Simplified" in node.op_type
    gain, *rest = inputs[2:]
    shift, bias = ("", *rest, "")[:2] if simplified else (*rest, "", "")[:2]
    out = node.output[0]
    total = node.output[3] if len(node.output) > 3 and node.output[3] else f"{out}/sum"
    skip = f"{out}/biased" if bias else inputs[1]
    nodes = [helper.make_node("Add", [inputs[0], bias], [skip])] if bias else []
    # The bias is of the linear map that comes first; what is skipped is the other.
    pair = [skip, inputs[1]] if bias else [inputs[0], inputs[1]]
    kind = "RMSNormalization" if simplified else "LayerNormalization"
    epsilon = _attribute(node, "epsilon", 1e-5)
    nodes.append(helper.make_node("Add", pair, [total]))
    norm = helper.make_node(
        kind, [n for n in (total, gain, shift) if n], [out], name=node.name, axis=-1, epsilon=epsilon
    )
    return [*nodes, norm]


def _gelu(node: onnx.NodeProto, graph: onnx.GraphProto) -> Nodes:
    """BiasGelu, FastGelu (by tanh) and Gelu, whose bias is optional, in the operators of every opset."""
    out, x = node.output[0], node.input[0]
    nodes = []
    if len(node.input) > 1 and node.input[1]:
        x = f"{out}/biased"
        nodes.append(helper.make_node("Add", list(node.input[:2]), [x]))
    half, one = _number(graph, f"{out}/half", 0.5), _number(graph, f"{out}/one", 1.0)
    if node.op_type == "FastGelu":
        cubic, scale = _number(graph, f"{out}/c", 0.044715), _number(graph, f"{out}/s", sqrt(2 / np.pi))
        three = _number(graph, f"{out}/three", 3.0)
        steps = [("Pow", [x, three]), ("Mul", ["", cubic]), ("Add", ["", x]), ("Mul", ["", scale]), ("Tanh", [""])]
    else:
        steps = [("Mul", [x, _number(graph, f"{out}/r", sqrt(0.5))]), ("Erf", [""])]
    steps += [("Add", ["", one]), ("Mul", ["", x]), ("Mul", ["", half])]
    return [*nodes, *_chain(steps, out)]


def _quick_gelu(node: onnx.NodeProto, graph: onnx.GraphProto) -> Nodes:
    """x · sigmoid(alpha · x): SiLU, where alpha is 1."""
    out, x = node.output[0], node.input[0]
    alpha = _number(graph, f"{out}/alpha", _attribute(node, "alpha", 1.702))
    return _chain([("Mul", [x, alpha]), ("Sigmoid", [""]), ("Mul", ["", x])], out)


def _chain(steps: list[tuple[str, list[str]]], out: str) -> Nodes:
    """Nodes in sequence; the input "" is the output of the node before."""
    nodes: Nodes = []
    for number, (op, inputs) in enumerate(steps):
        name = out if number == len(steps) - 1 else f"{out}/{number}"
        nodes.append(helper.make_node(op, [g or nodes[-1].output[0] for g in inputs], [name]))
    return nodes


LOWERINGS: dict[str, Callable[[onnx.NodeProto, onnx.GraphProto], Nodes]] = {
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_norm,
    "BiasGelu": _gelu,
    "FastGelu": _gelu,
    "Gelu": _gelu,
    "QuickGelu": _quick_gelu,
}


def _without_rounding(nodes: Nodes, graph: onnx.GraphProto) -> Nodes:
    """Bypass the quantisation of activations, and multiply by integer matrices as real ones."""
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    rounded = {name: node.input[0] for node in nodes for name in node.output[:1]
               if node.op_type in ROUNDING and node.input[0] not in initializers}  # fmt: skip
    scales = {node.output[1]: node for node in nodes if node.op_type == "DynamicQuantizeLinear"}
    kept: Nodes = []
    for node in nodes:
        if node.op_type in ROUNDING and node.output[0] in rounded:
            continue
        if node.op_type == "DequantizeLinear" and node.input[0] in rounded:
            node = helper.make_node("Identity", [rounded[node.input[0]]], [node.output[0]], name=node.name)
        elif node.op_type == "MatMulInteger" and node.input[0] in rounded and node.input[1] in initializers:
            zero = initializers.get(node.input[3]) if len(node.input) > 3 else None
            whole = numpy_helper.to_array(initializers[node.input[1]]).astype(np.float32)
            if zero is not None:
                whole = whole - numpy_helper.to_array(zero).astype(np.float32)
            weight = _constant(graph, f"{node.input[1]}/real", whole)
            node = helper.make_node("MatMul", [rounded[node.input[0]], weight], [node.output[0]], name=node.name)
        elif node.op_type == "Mul" and any(name in scales for name in node.input):
            other = [name for name in node.input if name not in scales]
            node = helper.make_node("Identity", other, [node.output[0]], name=node.name)  # the weight's scale alone
        kept.append(node)
    return _scaled_weights(kept, graph)


def _scaled_weights(nodes: Nodes, graph: onnx.GraphProto) -> Nodes:
    """Move the scale of an integer matrix, a factor of its product, into the matrix."""
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    passing = {node.output[0]: node.input[0] for node in nodes if node.op_type in ("Identity", "Cast")}
    products = {node.output[0]: node for node in nodes if node.op_type == "MatMul" and node.input[1].endswith("/real")}

    def origin(name: str) -> str:
        while name in passing:
            name = passing[name]
        return name

    for node in nodes:
        if node.op_type != "Mul":
            continue
        for product, scale in (node.input, node.input[::-1]):
            if origin(product) in products and origin(scale) in initializers:
                tensor = initializers[products[origin(product)].input[1]]
                real = numpy_helper.to_array(tensor) * numpy_helper.to_array(initializers[origin(scale)])
                tensor.CopyFrom(numpy_helper.from_array(real.astype(np.float32), tensor.name))
                changed = helper.make_node("Identity", [product], [node.output[0]], name=node.name)
                node.CopyFrom(changed)
                break
    return nodes
