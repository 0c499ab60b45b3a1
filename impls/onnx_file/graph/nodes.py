"""Single nodes: their attributes, inputs and subgraphs, and their name in a message."""

from collections.abc import Iterator

import onnx
from onnx import helper

STANDARD = ("", "ai.onnx")
"""The names of ONNX's own operator domain."""


def node_label(node: onnx.NodeProto) -> str:
    """A node, in a message."""
    return f"{node.op_type} {node.name or node.output[0]!r}"


def attributes_of(node: onnx.NodeProto) -> dict[str, object]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The bodies of If, Loop and Scan."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def inputs_of(node: onnx.NodeProto) -> Iterator[str]:
    """The inputs of a node and of the nodes in its subgraphs."""
    yield from node.input
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from inputs_of(inner)


def every_node(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes of the graph, its subgraphs and its functions."""
    found: list[onnx.NodeProto] = []
    waiting = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while waiting:
        node = waiting.pop()
        found.append(node)
        for graph in subgraphs(node):
            waiting += graph.node
    return found
