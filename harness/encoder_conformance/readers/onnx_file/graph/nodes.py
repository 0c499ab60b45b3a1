"""Single nodes: their attributes, inputs and subgraphs, and their name in a message."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import onnx
from onnx import helper

STANDARD = ("", "ai.onnx")
"""The names of ONNX's own operator domain."""


def node_label(node: onnx.NodeProto) -> str:
    """A node, in a message."""
    return f"{node.op_type} {node.name or node.output[0]!r}"


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def input_at(node: onnx.NodeProto, place: int) -> str:
    """The name of an input; "" where the node has none there."""
    return node.input[place] if len(node.input) > place else ""


def replace_nodes(graph: onnx.GraphProto | onnx.FunctionProto, nodes: Iterable[onnx.NodeProto]) -> None:
    kept = list(nodes)
    del graph.node[:]
    graph.node.extend(kept)


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


def takers_of(nodes: Iterable[onnx.NodeProto]) -> dict[str, list[onnx.NodeProto]]:
    """Value → the nodes that take more than its shape."""
    takers: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        if node.op_type not in ("Shape", "Size"):
            for name in dict.fromkeys(inputs_of(node)):
                takers.setdefault(name, []).append(node)
    return takers


def passed_on(name: str, takers: Mapping[str, list[onnx.NodeProto]], operators: Collection[str]) -> str:
    """The value that another becomes by these operators: one that several nodes take, as a layer's input is taken, or a
    node of another operator."""
    while len(nodes := takers.get(name, [])) == 1 and nodes[0].op_type in operators:
        name = nodes[0].output[0]
    return name


def leading_to(names: Iterable[str], producers: Mapping[str, onnx.NodeProto], ends: Iterable[str] = ()) -> set[str]:
    """`names` and the values that they are computed from; behind `ends`, which are among them, none is."""
    waiting, found = list(names), set(ends)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += inputs_of(producers[name]) if name in producers else ()
    return found


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
