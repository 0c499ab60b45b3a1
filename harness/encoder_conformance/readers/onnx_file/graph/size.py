"""How large a model is, by the shapes of its tensors: protobuf measures a message by writing it, in as many bytes."""

from collections.abc import Iterator
from math import prod

import onnx

LARGE = 64 << 20
"""Bytes of weights of a model of which no more copies are held than need be."""


def size_of(tensor: onnx.TensorProto) -> int:
    """The bytes that its shape asks for."""
    try:
        item = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (KeyError, ValueError):
        item = 1
    return int(item * max(0, prod(tensor.dims)))


def is_large(model: onnx.ModelProto) -> bool:
    """Whether its weights are more than LARGE; those within branches and loops are not counted."""
    return sum(map(size_of, _weights(model.graph))) > LARGE


def _weights(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        if node.op_type == "Constant":
            yield from (attribute.t for attribute in node.attribute)
