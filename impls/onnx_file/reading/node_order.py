"""Checks the topological order of nodes. ONNX Runtime ends its process over a graph that is not sorted."""

import onnx

from encoder_conformance.impls.onnx_file.findings import Findings
from encoder_conformance.impls.onnx_file.graph.nodes import node_label, subgraphs
from encoder_conformance.impls.onnx_file.reading.loading import Unreadable

SORTED = (
    "sort them: OnnxModel(onnx.load(path)).topological_sort(), of onnxruntime.transformers.onnx_model; float16's "
    "converter leaves them so with keep_io_types=True (microsoft/onnxconverter-common#208)"
)


def check_order(model: onnx.ModelProto, findings: Findings) -> None:
    """Raises Unreadable after a finding of phase `file` that names the first node out of order."""
    graph = model.graph
    problem = _out_of_order(list(graph.node), _initial_values(graph), frozenset())
    for function in model.functions:
        problem = problem or _out_of_order(list(function.node), set(function.input), frozenset())
    if problem:
        findings.error("file", problem, SORTED)
        raise Unreadable(problem)


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
