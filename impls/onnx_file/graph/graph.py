"""The working copy of a model: functions inlined, Constant nodes as initializers, each value's producer indexed."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import onnx
import onnx.inliner
from onnx import numpy_helper

from encoder_conformance.impls.onnx_file.graph.lowering import MICROSOFT, is_quantised, lower
from encoder_conformance.impls.onnx_file.graph.nodes import STANDARD, inputs_of


class Graph:
    """`original` has the nodes of the file. `model` is written in ONNX's own operators; every value keeps its name.

    `quantised`: the file computes with integers, and `model` with the numbers that they stand for.
    """

    def __init__(self, source: onnx.ModelProto) -> None:
        model = onnx.ModelProto()
        model.CopyFrom(source)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        constants_to_initializers(model.graph)
        self.original = model
        self.quantised = is_quantised(model.graph)
        if self.quantised or any(node.domain == MICROSOFT for node in model.graph.node):
            self.original = onnx.ModelProto()
            self.original.CopyFrom(model)
            lower(model.graph)
        self.model = model
        self.opsets = {entry.domain: entry.version for entry in model.opset_import}
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self.inputs = [info for info in model.graph.input if info.name not in self.initializers]
        self.producers = {name: node for node in model.graph.node for name in node.output if name}

    @property
    def nodes(self) -> Iterator[onnx.NodeProto]:
        return iter(self.model.graph.node)

    @cached_property
    def original_initializers(self) -> set[str]:
        """The names of the file's own initializers."""
        return {tensor.name for tensor in self.original.graph.initializer}

    @cached_property
    def original_values(self) -> set[str]:
        """The names of the values that the file's own nodes compute."""
        return {output for node in self.original.graph.node for output in node.output}

    @cached_property
    def constants(self) -> dict[str, np.ndarray]:
        """Name → value of every initializer."""
        return {name: numpy_helper.to_array(tensor) for name, tensor in self.initializers.items()}

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Name → the number of its first element, with the elements of all initializers numbered consecutively."""
        offsets, total = {}, 0
        for name, value in self.constants.items():
            offsets[name] = total
            total += value.size
        return offsets

    def depending_on(self, name: str) -> set[str]:
        """`name` and the values whose numbers, not only shapes, depend on it."""
        found = {name}
        for node in self.nodes:
            if node.op_type not in ("Shape", "Size") and any(name in found for name in inputs_of(node)):
                found.update(node.output)
        return found


def constants_to_initializers(graph: onnx.GraphProto) -> None:
    """Turn each Constant node into an initializer of the same name."""
    kept = []
    for node in graph.node:
        if node.op_type != "Constant" or node.domain not in STANDARD:
            kept.append(node)
            continue
        value = constant_value(node)
        if value is None:
            kept.append(node)
        else:
            value.name = node.output[0]
            graph.initializer.append(value)
    del graph.node[:]
    graph.node.extend(kept)


def constant_value(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """The tensor of a Constant node; None for strings and sparse tensors."""
    [attribute] = node.attribute
    tensor = onnx.TensorProto()
    match attribute.name:
        case "value":
            tensor.CopyFrom(attribute.t)
        case "value_float":
            tensor.CopyFrom(numpy_helper.from_array(np.float32(attribute.f).reshape(())))
        case "value_floats":
            tensor.CopyFrom(numpy_helper.from_array(np.array(attribute.floats, np.float32)))
        case "value_int":
            tensor.CopyFrom(numpy_helper.from_array(np.int64(attribute.i).reshape(())))
        case "value_ints":
            tensor.CopyFrom(numpy_helper.from_array(np.array(attribute.ints, np.int64)))
        case _:
            return None
    return tensor
