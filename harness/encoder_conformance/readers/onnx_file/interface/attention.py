"""Whether there can be attention in a file at all, and which of its values are past it: told by the operators alone,
for a trace of what has none takes minutes."""

from collections import Counter
from collections.abc import Iterator

import onnx

from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import subgraphs
from encoder_conformance.readers.onnx_file.graph.operators import CONVOLUTIONS, PRODUCTS

_OF_INTEGERS = ("ConvInteger", "QLinearConv")
_RECURRENT = ("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM")
_LOOPS = ("Loop", "Scan")
_SHOWN = 4


def without_attention(graph: Graph) -> str:
    """Of what kind a file is in which no two values that are computed are multiplied as matrices, as queries and keys
    are; "" where some are, or where nothing says what it is instead."""
    graphs = [*_all_graphs(graph.model.graph)]
    nodes = [node for each in graphs for node in each.node]
    counted = Counter(node.op_type for node in nodes)
    kinds = [each for each in (*sorted(CONVOLUTIONS), *_OF_INTEGERS, *_RECURRENT, *_LOOPS) if counted[each]]
    known = {tensor.name for each in graphs for tensor in each.initializer}
    known |= {node.output[0] for node in nodes if node.op_type == "Constant"}
    if not kinds or any(_may_attend(node, known) for node in nodes):
        return ""
    shown = sorted(kinds, key=lambda kind: -counted[kind])[:_SHOWN]
    return ", ".join(f"{counted[kind]} {kind}" for kind in shown)


def past_attention(graph: Graph) -> set[str]:
    """The values that depend on such a product; none where there is none, or where it is inside a subgraph."""
    known, found = {*graph.initializers}, set[str]()
    for node in graph.nodes:
        if _may_attend(node, known) or not found.isdisjoint(node.input):
            found.update(filter(None, node.output))
    return found


def _may_attend(node: onnx.NodeProto, known: set[str]) -> bool:
    """Whether it is a product of two values, neither a constant, or an operator of attention."""
    first, second = (0, 3) if node.op_type == "QLinearMatMul" else (0, 1)
    if node.op_type in (*PRODUCTS, "MatMulInteger", "QLinearMatMul") and len(node.input) > second:
        return known.isdisjoint((node.input[first], node.input[second]))
    return "Attention" in node.op_type


def _all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _all_graphs(inner)
