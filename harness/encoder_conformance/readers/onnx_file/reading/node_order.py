"""Checks the topological order of nodes, and sorts them: runtimes take or refuse a graph that is not sorted."""

from graphlib import CycleError, TopologicalSorter

import onnx

from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.nodes import inputs_of, node_label, replace_nodes, subgraphs
from encoder_conformance.readers.onnx_file.reading.loading import UnreadableFile

SORTED = (
    "it is judged with its nodes in order; `conform validate --fix NEW.onnx` writes it so. ONNX's checker refuses the "
    "file as it is; float16's converter leaves it so with keep_io_types=True (microsoft/onnxconverter-common#208)"
)


def check_order(model: onnx.ModelProto, findings: Findings) -> None:
    """Sorts the nodes in place, with a warning of phase `file` that names the first one out of order.

    Raises UnreadableFile where they are in a circle.
    """
    problem = first_problem(model)
    if not problem:
        return
    try:
        sort_nodes(model)
    except CycleError as circle:
        message = f"{problem}; {len(circle.args[1]) - 1} nodes are in a circle"
        raise UnreadableFile(message, hint="export it again") from None
    findings.warning("file", "nodes-out-of-order", problem, SORTED)


def first_problem(model: onnx.ModelProto) -> str:
    """The first node that takes a value of a later one; "" if there is none."""
    problem = _out_of_order(list(model.graph.node), _initial_values(model.graph), frozenset())
    for function in model.functions:
        problem = problem or _out_of_order(list(function.node), set(function.input), frozenset())
    return problem


def sort_nodes(model: onnx.ModelProto) -> None:
    """Every graph's and function's nodes, each after what it takes; raises CycleError."""
    for graph in (model.graph, *model.functions):
        _sort(graph)


def _sort(graph: onnx.GraphProto | onnx.FunctionProto) -> None:
    nodes = list(graph.node)
    for node in nodes:
        for inner in subgraphs(node):
            _sort(inner)
    makers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    needs = {
        place: sorted({makers[name] for name in inputs_of(node) if name in makers} - {place})
        for place, node in enumerate(nodes)
    }
    kept = [onnx.NodeProto() for _ in nodes]
    for copy, place in zip(kept, TopologicalSorter(needs).static_order(), strict=True):
        copy.CopyFrom(nodes[place])
    replace_nodes(graph, kept)


def _initial_values(graph: onnx.GraphProto) -> set[str]:
    sparse = {tensor.values.name for tensor in graph.sparse_initializer}
    return {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer} | sparse


def _out_of_order(nodes: list[onnx.NodeProto], available: set[str], outer: frozenset[str]) -> str:
    """The first node that takes a value of a later one; "" if there is none.

    A value of the `outer` graph is available; one that no node computes is a finding of the checker.
    """
    producers = {name: node for node in reversed(nodes) for name in node.output if name}
    for node in nodes:
        for name in node.input:
            if name in producers and name not in available and name not in outer:
                producer = node_label(producers[name])
                return f"{node_label(node)} takes {name!r}, which {producer} makes after it: nodes are to be in order"
        for inner in subgraphs(node):
            if problem := _out_of_order(list(inner.node), _initial_values(inner), outer | available):
                return problem
        available.update(node.output)
    return ""
