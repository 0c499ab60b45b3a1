"""An embedding before the first layer, which is not followed: what it is over, and where the layers begin after it."""

from collections.abc import Collection
from dataclasses import dataclass

import onnx

from encoder_conformance.impls.onnx_file.graph.graph import Graph, used_by
from encoder_conformance.impls.onnx_file.graph.operators import IDENTITIES
from encoder_conformance.impls.onnx_file.tracing.matrix_products import named

ADDED = frozenset(("Add", "Sum", "Mul", "LayerNormalization")) | IDENTITIES
"""What stands between an embedding and the first layer: positions and token types added, a factor, a norm."""


@dataclass(frozen=True)
class Embedding:
    """`ids` is the graph's input, `rows` the number of tokens, `output` the value that the first layer takes, and
    `beside` the inputs that the layers take, too."""

    ids: str
    rows: int
    node: str
    output: str
    beside: tuple[str, ...]


def embedding(graph: Graph, integers: Collection[str]) -> Embedding | None:
    """The largest table of numbers whose rows one of these inputs picks."""
    found: list[Embedding] = []
    taking = _taking(graph)
    for node in graph.nodes:
        table = graph.initializers.get(node.input[0]) if node.op_type == "Gather" else None
        if table is None or len(table.dims) != 2 or table.data_type not in _FLOATS:
            continue
        ids = _origin(graph, node.input[1])
        if ids in integers:
            output = _last(node.output[0], taking)
            found.append(Embedding(ids, table.dims[0], named(node), output, _beside(graph, output)))
    return max(found, key=lambda one: one.rows, default=None)


_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def _taking(graph: Graph) -> dict[str, list[onnx.NodeProto]]:
    """Value → the nodes that take more than its sizes."""
    taking: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.nodes:
        if node.op_type not in ("Shape", "Size"):
            for name in dict.fromkeys(used_by(node)):
                taking.setdefault(name, []).append(node)
    return taking


def _origin(graph: Graph, name: str) -> str:
    while (node := graph.makers.get(name)) is not None and node.op_type in IDENTITIES:
        name = node.input[0]
    return name


def _last(name: str, taking: dict[str, list[onnx.NodeProto]]) -> str:
    """The value that more than one node takes, as a layer's input is taken, or a node that belongs to the layer."""
    while len(nodes := taking.get(name, [])) == 1 and nodes[0].op_type in ADDED:
        name = nodes[0].output[0]
    return name


def _beside(graph: Graph, output: str) -> tuple[str, ...]:
    """The inputs from which the graph's outputs are reached past `output`."""
    inputs = [info.name for info in graph.inputs]
    waiting, seen = [info.name for info in graph.model.graph.output], {output}
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            node = graph.makers.get(name)
            waiting += used_by(node) if node is not None else ()
    return tuple(name for name in inputs if name in seen)
