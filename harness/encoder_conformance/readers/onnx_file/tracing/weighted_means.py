"""Tells a difference that a weighted mean is made of, x + w · (y − x), from one that is meant as one."""

from collections.abc import Collection, Iterator

import onnx

from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.operators import IDENTITIES
from encoder_conformance.readers.onnx_file.tracing.features import Feature


def feature_of_difference(graph: Graph, difference: onnx.NodeProto, dependent: Collection[str]) -> Feature:
    """What is known of a difference of two things that depend on x: where it is multiplied, and added to or taken from
    one of the two, as `torch.lerp` does, what skips is weighed, by numbers or by what x makes; else it is subtracted.
    `dependent`: the values that depend on x."""
    for product in _readers(graph, difference.output[0]):
        if product.op_type != "Mul":
            continue
        sums = [each for each in _readers(graph, product.output[0]) if each.op_type in ("Add", "Sub")]
        if any({*each.input} & {*difference.input} for each in sums):
            return "gated_skip" if all(each in dependent for each in product.input) else "skip_scaled"
    return "subtracted"


def _readers(graph: Graph, name: str) -> Iterator[onnx.NodeProto]:
    """The nodes that compute with a value, or with the same in another format."""
    for node in graph.nodes:
        if name in node.input:
            if node.op_type in IDENTITIES:
                yield from _readers(graph, node.output[0])
            else:
                yield node
