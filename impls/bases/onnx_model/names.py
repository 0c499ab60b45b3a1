"""Renames what flows through a graph."""

from collections.abc import Mapping

import onnx


def rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Old name → new. A value that bears a new name and keeps it not makes way: it gets a name of its own."""
    taken = _names(graph)
    names = {old: new for old, new in names.items() if old != new}
    apart = {new: _free(new, taken) for new in names.values() if new in taken and new not in names}
    _rename(graph, {**names, **apart})


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for tensor in (*graph.initializer, *graph.input, *graph.output, *graph.value_info):
        tensor.name = names.get(tensor.name, tensor.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:  # the branches of an If see the names of the graph around them
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename(attribute.g, names)


def _names(graph: onnx.GraphProto) -> set[str]:
    made = {name for node in graph.node for name in (*node.input, *node.output)}
    return made | {tensor.name for tensor in (*graph.initializer, *graph.input, *graph.output)}


def _free(name: str, taken: set[str]) -> str:
    number = next(n for n in range(len(taken) + 1) if f"{name}_{n}" not in taken)
    taken.add(f"{name}_{number}")
    return f"{name}_{number}"
