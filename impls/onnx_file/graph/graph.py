"""The graph as it is worked on: functions inlined, constants among the initializers, each value's node at hand."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import onnx
import onnx.inliner
from onnx import numpy_helper

from encoder_conformance.impls.onnx_file.graph.lowering import MICROSOFT, rewrite, rounds


class Graph:
    """`model` is a copy of the stranger's, prepared; every value that it computes keeps its name. `rounds`: the file
    computes with integers, and `model` with the numbers that they stand for."""

    def __init__(self, stranger: onnx.ModelProto) -> None:
        model = onnx.ModelProto()
        model.CopyFrom(stranger)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        constants_to_initializers(model.graph)
        self.stated = model
        """The same with the nodes that the file has, where `model` is written in ONNX's own operators."""
        self.rounds = rounds(model.graph)
        if self.rounds or any(node.domain == MICROSOFT for node in model.graph.node):
            self.stated = onnx.ModelProto()
            self.stated.CopyFrom(model)
            rewrite(model.graph)
        self.model = model
        self.opsets = {entry.domain: entry.version for entry in model.opset_import}
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self.inputs = [given for given in model.graph.input if given.name not in self.initializers]
        self.makers = {name: node for node in model.graph.node for name in node.output if name}

    @property
    def nodes(self) -> Iterator[onnx.NodeProto]:
        return iter(self.model.graph.node)

    @cached_property
    def stated_initializers(self) -> set[str]:
        """Names of those that the file itself has."""
        return {tensor.name for tensor in self.stated.graph.initializer}

    @cached_property
    def constants(self) -> dict[str, np.ndarray]:
        """Name → value of every initializer."""
        return {name: numpy_helper.to_array(tensor) for name, tensor in self.initializers.items()}

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Name → the number of its first element, where those of all initializers are counted through."""
        offsets, total = {}, 0
        for name, value in self.constants.items():
            offsets[name] = total
            total += value.size
        return offsets

    def depending_on(self, name: str) -> set[str]:
        """The values whose numbers, and not only shapes, depend on `name`; itself is one."""
        found = {name}
        for node in self.nodes:
            if node.op_type not in ("Shape", "Size") and any(given in found for given in used_by(node)):
                found.update(node.output)
        return found


def used_by(node: onnx.NodeProto) -> Iterator[str]:
    """What a node takes, in its subgraphs too."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            for inner in graph.node:
                yield from used_by(inner)


def constants_to_initializers(graph: onnx.GraphProto) -> None:
    """A Constant node becomes an initializer of its output's name, so that there is one kind of constant."""
    kept = []
    for node in graph.node:
        if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
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
    """What a Constant node holds; None for strings and sparse tensors."""
    [attribute] = node.attribute
    held = onnx.TensorProto()
    match attribute.name:
        case "value":
            held.CopyFrom(attribute.t)
        case "value_float":
            held.CopyFrom(numpy_helper.from_array(np.float32(attribute.f).reshape(())))
        case "value_floats":
            held.CopyFrom(numpy_helper.from_array(np.array(attribute.floats, np.float32)))
        case "value_int":
            held.CopyFrom(numpy_helper.from_array(np.int64(attribute.i).reshape(())))
        case "value_ints":
            held.CopyFrom(numpy_helper.from_array(np.array(attribute.ints, np.int64)))
        case _:
            return None
    return held
