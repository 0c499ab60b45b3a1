"""Nodes in order: each takes what is there before it. ONNX Runtime ends its process over a graph that is not so."""

import onnx

from encoder_conformance.impls.onnx_file.findings import Findings
from encoder_conformance.impls.onnx_file.reading.loading import Unreadable
from encoder_conformance.impls.onnx_file.tracing.matrix_products import named

SORTED = (
    "sort them: OnnxModel(onnx.load(path)).topological_sort(), of onnxruntime.transformers.onnx_model; float16's "
    "converter leaves them so with keep_io_types=True (microsoft/onnxconverter-common#208)"
)


def check_order(model: onnx.ModelProto, findings: Findings) -> None:
    """Raises Unreadable after a finding of stage `file` that names the first node out of order."""
    graph = model.graph
    said = _out_of_order(list(graph.node), _given(graph), frozenset())
    for function in model.functions:
        said = said or _out_of_order(list(function.node), set(function.input), frozenset())
    if said:
        findings.error("file", said, SORTED)
        raise Unreadable(said)


def _given(graph: onnx.GraphProto) -> set[str]:
    sparse = {tensor.values.name for tensor in graph.sparse_initializer}
    return {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer} | sparse


def _out_of_order(nodes: list[onnx.NodeProto], there: set[str], around: frozenset[str]) -> str:
    """ "" if every node takes what is there, or is `around` this graph, or is made nowhere, which the checker says."""
    maker = {name: node for node in reversed(nodes) for name in node.output if name}
    for node in nodes:
        for name in node.input:
            if name in maker and name not in there and name not in around:
                return (
                    f"{named(node)} takes {name!r}, which {named(maker[name])} makes after it: nodes are to be in order"
                )
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                if said := _out_of_order(list(inner.node), _given(inner), around | there):
                    return said
        there.update(node.output)
    return ""
