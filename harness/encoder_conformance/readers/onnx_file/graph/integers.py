"""Rewrites what computes with integers in the real numbers that they stand for.

Integer weights become those numbers. The rounding of activations is left out, or kept as a rounding of real numbers,
which shows what the integers alone do to a value.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from encoder_conformance.readers.onnx_file.graph.nodes import replace_nodes

ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear")
NARROW = frozenset(
    (onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.INT4, onnx.TensorProto.UINT4)
)  # fmt: skip
"""The formats of weights that are integers and are read by Cast and Mul."""
Nodes = list[onnx.NodeProto]
Initializers = dict[str, onnx.TensorProto]


@dataclass(frozen=True)
class Integers:
    """The storage of a weight: the format, and the largest distance of the numbers of two neighbouring integers."""

    format: str
    step: float


def is_quantised(graph: onnx.GraphProto) -> bool:
    """Whether the graph rounds activations to integers."""
    return bool(_quantisers(graph.node, _initializers(graph)))


def stored_integers(graph: onnx.GraphProto) -> dict[str, Integers]:
    """The value that a weight is read back as → how it is stored: by DequantizeLinear, or by Cast and Mul."""
    known, found = _initializers(graph), {}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in known and node.input[1] in known:
            found[node.output[0]] = _stored(known[node.input[0]], known[node.input[1]])
    return found | {name: _stored(*held) for name, held in cast_weights(graph).items()}


def cast_weights(graph: onnx.GraphProto) -> dict[str, tuple[onnx.TensorProto, onnx.TensorProto]]:
    """The value that a weight is read back as → its integers and its scale, of Cast, Sub of a zero point, and Mul."""
    known = _initializers(graph)
    whole: Initializers = {}
    found = {}
    for node in graph.node:
        of = node.input[0] if node.input else ""
        if node.op_type == "Cast" and of in known and _is_weight(known[of]):
            whole[node.output[0]] = known[of]
        elif node.op_type == "Sub" and of in whole and (node.input[1] in known or node.input[1] in whole):
            whole[node.output[0]] = whole[of]
        elif node.op_type == "Mul":
            for integers, scale in permutations(node.input, 2):
                if integers in whole and scale in known:
                    found[node.output[0]] = whole[integers], known[scale]
    return found


def _is_weight(tensor: onnx.TensorProto) -> bool:
    """Whether these are integers that numbers were rounded to: a mask has zeros and ones, an index no narrow format."""
    if tensor.data_type not in NARROW or not tensor.dims:
        return False
    return not np.isin(numpy_helper.to_array(tensor).astype(np.int64), (0, 1)).all()


def to_real_numbers(graph: onnx.GraphProto, *, rounded: bool) -> dict[str, Integers]:
    """Rewrites the graph in place. `rounded`: activations are rounded as the file rounds them. Gives the weights of
    integer products, by the names of their real numbers."""
    known = _initializers(graph)
    quantisers = _quantisers(graph.node, known)
    real = {name: f"{name}/back" if rounded else node.input[0] for name, node in quantisers.items()}
    scales = {node.output[1] for node in quantisers.values() if node.op_type == "DynamicQuantizeLinear"}
    kept: Nodes = []
    wholes: Initializers = {}
    for node in graph.node:
        if node.output[0] in quantisers:
            kept += _rounded(node) if rounded else []
        elif node.op_type == "DequantizeLinear" and node.input[0] in real:
            kept.append(_identity(node, real[node.input[0]]))
        elif node.op_type == "MatMulInteger" and node.input[0] in real and node.input[1] in known:
            weight = f"{node.input[1]}/{node.output[0]}/real"
            wholes[weight] = known[node.input[1]]
            graph.initializer.append(_less_zero_point(node, known, weight))
            kept.append(helper.make_node("MatMul", [real[node.input[0]], weight], [node.output[0]], name=node.name))
        elif node.op_type == "Mul" and not scales.isdisjoint(node.input):
            kept.append(_identity(node, next(name for name in node.input if name not in scales)))
        else:
            kept.append(node)
    found = _scale_weights(kept, graph, wholes)
    replace_nodes(graph, kept)
    return found


def _initializers(graph: onnx.GraphProto) -> Initializers:
    return {tensor.name: tensor for tensor in graph.initializer}


def _quantisers(nodes: Iterable[onnx.NodeProto], known: Initializers) -> dict[str, onnx.NodeProto]:
    """The integers of an activation → the node that makes them."""
    return {node.output[0]: node for node in nodes if node.op_type in ROUNDING and node.input[0] not in known}


def _stored(whole: onnx.TensorProto, scale: onnx.TensorProto) -> Integers:
    return Integers(
        onnx.TensorProto.DataType.Name(whole.data_type).lower(), float(np.abs(numpy_helper.to_array(scale)).max())
    )


def _identity(node: onnx.NodeProto, of: str) -> onnx.NodeProto:
    return helper.make_node("Identity", [of], [node.output[0]], name=node.name)


def _rounded(node: onnx.NodeProto) -> Nodes:
    """The quantiser, and right behind it the way back by its own scale and zero point."""
    integers = node.output[0]
    by = list(node.output[1:3]) if node.op_type == "DynamicQuantizeLinear" else list(node.input[1:3])
    back = helper.make_node("DequantizeLinear", [integers, *by], [f"{integers}/back"], name=f"{integers}/back")
    back.attribute.extend(a for a in node.attribute if a.name in ("axis", "block_size"))
    return [node, back]


def _less_zero_point(node: onnx.NodeProto, known: Initializers, weight: str) -> onnx.TensorProto:
    """The integer matrix of a product less its zero point, in real numbers that are not scaled yet."""
    whole = numpy_helper.to_array(known[node.input[1]]).astype(np.float32)
    zero = known.get(node.input[3]) if len(node.input) > 3 else None
    if zero is not None:
        whole = whole - numpy_helper.to_array(zero).astype(np.float32)
    return numpy_helper.from_array(whole, weight)


def _scale_weights(nodes: Nodes, graph: onnx.GraphProto, wholes: Initializers) -> dict[str, Integers]:
    """Move the scale of an integer matrix, a factor of its product, into the matrix; in place. `wholes` has the
    integers of each real matrix."""
    weights = _initializers(graph)
    passing = {node.output[0]: node.input[0] for node in nodes if node.op_type in ("Identity", "Cast")}
    products = {node.output[0]: node for node in nodes if node.op_type == "MatMul" and node.input[1] in wholes}

    def origin(name: str) -> str:
        while name in passing:
            name = passing[name]
        return name

    found = {}
    for node in nodes:
        for product, scale in permutations(node.input, 2) if node.op_type == "Mul" else ():
            weight = products[origin(product)].input[1] if origin(product) in products else ""
            if weight and origin(scale) in weights:
                real = numpy_helper.to_array(weights[weight]) * numpy_helper.to_array(weights[origin(scale)])
                weights[weight].CopyFrom(numpy_helper.from_array(real.astype(np.float32), weight))
                found[weight] = _stored(wholes[weight], weights[origin(scale)])
                node.CopyFrom(_identity(node, product))
                break
    return found
