"""Finds an embedding before the first layer: its table of tokens, and where the layers begin after it."""

from collections.abc import Collection
from dataclasses import dataclass

import onnx

from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import node_label, passed_on, takers_of
from encoder_conformance.readers.onnx_file.graph.operators import FLOAT_TYPES, IDENTITIES

ADDED = frozenset(("Add", "Sum", "Mul", "LayerNormalization", "DequantizeLinear")) | IDENTITIES
"""Operators between an embedding and the first layer: sums with positions and token types, a factor, a norm."""
_OF_A_BYTE = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)


@dataclass(frozen=True)
class TokenEmbedding:
    """`ids` is the graph's input, `rows` the number of tokens. The layers take `output` and the inputs `beside`, from
    which the graph's outputs are reached past it."""

    ids: str
    rows: int
    node: str
    output: str
    beside: tuple[str, ...]


def embedding(graph: Graph, integers: Collection[str]) -> TokenEmbedding | None:
    """The largest table whose rows one of these inputs selects."""
    found: list[TokenEmbedding] = []
    takers = takers_of(graph.nodes)
    for node in graph.nodes:
        table = graph.initializers.get(node.input[0]) if node.op_type == "Gather" else None
        if table is None or len(table.dims) != 2 or table.data_type not in (*FLOAT_TYPES, *_OF_A_BYTE):
            continue
        ids = graph.origin(node.input[1])
        if ids in integers:
            output = passed_on(node.output[0], takers, ADDED)
            needed = graph.needed_by([info.name for info in graph.model.graph.output], ends=[output])
            beside = tuple(info.name for info in graph.inputs if info.name in needed)
            found.append(TokenEmbedding(ids, table.dims[0], node_label(node), output, beside))
    return max(found, key=lambda one: one.rows, default=None)
