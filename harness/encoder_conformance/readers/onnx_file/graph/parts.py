"""The constants and nodes that a lowering puts in the place of a fused node."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from encoder_conformance.readers.onnx_file.graph.integers import Integers
from encoder_conformance.readers.onnx_file.graph.operators import float_type_of
from encoder_conformance.spec.axes import Array


class Parts:
    """Adds constants to `graph`, and to `nodes` those that replace one. `dims` has the shapes of initializers, `opset`
    is that of ONNX's own operators, `packed` says how weights were stored that were unpacked."""

    def __init__(self, graph: onnx.GraphProto, opset: int) -> None:
        self.graph, self.opset = graph, opset
        self.nodes: list[onnx.NodeProto] = []
        self.packed: dict[str, Integers] = {}
        self.dims = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        self.float_type = float_type_of(graph)
        self._ranks = {
            info.name: len(info.type.tensor_type.shape.dim)
            for info in (*graph.input, *graph.value_info)
            if info.type.tensor_type.HasField("shape")
        }
        self._like = {
            name: node.input[0] for node in graph.node if node.op_type in ("Cast", "Identity") for name in node.output
        }
        for node in graph.node:
            if node.op_type == "EmbedLayerNormalization" and len(node.output) > 1:
                self._ranks[node.output[1]] = 1
            if node.op_type == "ReduceSum" and not any(a.name == "keepdims" and a.i for a in node.attribute):
                self._ranks.setdefault(node.output[0], 1)

    def node(self, op: str, inputs: Iterable[str], output: str, **attributes: Any) -> str:
        """Adds a node with those inputs that are not "", and gives the name of its output."""
        self.nodes.append(helper.make_node(op, [name for name in inputs if name], [output], **attributes))
        return output

    def biased_product(self, node: onnx.NodeProto, operands: Iterable[str], bias: str) -> bool:
        """Adds the product that a node is, and its bias where it has one; True, since it is lowered."""
        out = node.output[0]
        product = self.node("MatMul", operands, f"{out}/product" if bias else out, name=node.name)
        if bias:
            self.node("Add", [product, bias], out)
        return True

    def rank(self, name: str) -> int | None:
        """The number of axes of a value, if the graph says so."""
        while name not in self._ranks and name not in self.dims and name in self._like:
            name = self._like[name]
        return self._ranks.get(name) or (len(self.dims[name]) if name in self.dims else None)

    def constant(self, name: str, value: Array) -> str:
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        self.dims[name] = value.shape
        return name

    def number(self, name: str, value: float) -> str:
        """A number in the format of most weights: a fused node takes and gives it, and has no constants of its own."""
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(self.float_type))
        limits = np.finfo(dtype) if dtype.kind == "f" else None
        held = value if limits is None else max(value, float(limits.min))
        return self.constant(name, np.array(held, dtype))

    def along(self, op: str, name: str, out: str, axis: int, **attributes: int) -> str:
        """Adds a node that takes its axis as an input; before opset 13 it was an attribute."""
        if self.opset < 13:
            return self.node(op, [name], out, axes=[axis], **attributes)
        return self.node(op, [name, self.constant(f"{out}/axis", np.array([axis]))], out, **attributes)

    def places(self, of: str, axis: int, out: str) -> str:
        """Adds the numbers from 0 of the places along an axis of `of`."""
        numbers = {"zero": 0, "one": 1, "axis": axis}
        zero, one, at = (self.constant(f"{out}/{name}", np.array(number)) for name, number in numbers.items())
        size = self.node("Gather", [self.node("Shape", [of], f"{out}/shape"), at], f"{out}/size", axis=0)
        return self.node("Range", [zero, size, one], out)

    def sizes(self, name: str) -> list[int] | None:
        """The sizes of a value, where the graph says all of them."""
        info = next((each for each in self.graph.value_info if each.name == name), None)
        sizes = [each.dim_value for each in info.type.tensor_type.shape.dim] if info is not None else []
        return sizes if sizes and all(sizes) else None

    def tensor(self, name: str) -> Array | None:
        """The value of an initializer."""
        held = next((tensor for tensor in self.graph.initializer if tensor.name == name), None)
        return None if held is None else numpy_helper.to_array(held)
