"""The whole file's inputs, outputs and format; and how many rows its tables have, of ids and of positions."""

from collections import Counter
from collections.abc import Mapping, Sequence

from onnx import NodeProto, TensorProto

from encoder_conformance.protocol.description import WholeFile, WholeInput
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import takers_of
from encoder_conformance.readers.onnx_file.graph.size import size_of
from encoder_conformance.readers.onnx_file.interface.ports import INTEGERS, port_of

_KEPT = frozenset(
    ("Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Transpose", "Slice", "Concat")
)  # fmt: skip
"""Operators that keep the numbers of what they take."""
_FROM_THE_END = ("Where", "Add", "Mul", "Sum")
"""Operators by which JAX and TensorFlow make an index that counts from the end one from the beginning."""
_FORMATS = {
    TensorProto.FLOAT: "float32", TensorProto.DOUBLE: "float64", TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
}  # fmt: skip


def whole_file(graph: Graph) -> WholeFile:
    """From the first input to the last output."""
    rows = _rows_indexed(graph)
    inputs = (WholeInput(**port_of(info).model_dump(), rows=rows.get(info.name)) for info in graph.inputs)
    outputs = tuple(map(port_of, graph.original.graph.output))
    return WholeFile(inputs=tuple(inputs), outputs=outputs, held=format_held(graph), places=_places(graph))


def format_held(graph: Graph) -> str | None:
    """The format of most bytes of its constants' numbers, "int8" for one of integers; None: it has none."""
    if graph.quantised or graph.integers:
        return "int8"
    bytes_of: Counter[str] = Counter()
    for tensor in graph.original.graph.initializer:
        if kind := _FORMATS.get(tensor.data_type):
            bytes_of[kind] += size_of(tensor)
    return max(bytes_of, key=lambda kind: bytes_of[kind], default=None)


def _places(graph: Graph) -> tuple[int, ...]:
    """The rows of each constant table of which no input says which are taken, as of positions."""
    inputs, tables = {info.name for info in graph.inputs}, list[TensorProto]()
    for node in graph.nodes:
        table = graph.initializers.get(node.input[0]) if node.op_type in ("Gather", "Slice") else None
        if table is not None and len(table.dims) > 1 and table.data_type in _FORMATS:
            tables += [table] if node.op_type == "Slice" or graph.origin(node.input[1]) not in inputs else []
    return tuple(sorted({max(table.dims[:-1]) for table in tables}))


def _rows_indexed(graph: Graph) -> dict[str, int]:
    """Integer input → the fewest rows of the constant tables that its own numbers index."""
    takers = takers_of(graph.nodes)
    found: dict[str, int] = {}
    for name in (port.name for port in map(port_of, graph.inputs) if port.dtype in INTEGERS):
        ahead, rows = [name], list[int]()
        kept = _KEPT.union(_FROM_THE_END) if _may_be_negative(name, takers) else _KEPT
        seen = set[str]()
        while ahead:
            value = ahead.pop()
            if value in seen:
                continue
            seen.add(value)
            for node in takers.get(value, ()):
                if node.op_type == "Gather" and len(node.input) > 1 and node.input[1] == value:
                    table = graph.initializers.get(node.input[0])
                    rows += [int(table.dims[0])] if table is not None and table.dims else []
                elif node.op_type in kept and (node.input[0] == value or node.op_type in _FROM_THE_END):
                    ahead += [output for output in node.output if output]
        if rows:
            found[name] = min(rows)
    return found


def _may_be_negative(name: str, takers: Mapping[str, Sequence[NodeProto]]) -> bool:
    """Whether it is compared with something as an index is with 0 that may count from the end."""
    casts = [output for node in takers.get(name, ()) if node.op_type == "Cast" for output in node.output]
    return any(node.op_type == "Less" for each in (name, *casts) for node in takers.get(each, ()))
