"""The constants and small nodes that a lowering adds to a graph."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from encoder_conformance.impls.onnx_file.graph.operators import float_type_of


class Parts:
    """Adds to `graph`. `dims` has the shapes of initializers, `opset` is that of ONNX's own operators."""

    def __init__(self, graph: onnx.GraphProto, opset: int) -> None:
        self.graph, self.opset = graph, opset
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

    def rank(self, name: str) -> int | None:
        """The number of axes of a value, if the graph says so."""
        while name not in self._ranks and name not in self.dims and name in self._like:
            name = self._like[name]
        return self._ranks.get(name) or (len(self.dims[name]) if name in self.dims else None)

    def constant(self, name: str, value: np.ndarray) -> str:
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        self.dims[name] = value.shape
        return name

    def number(self, name: str, value: float) -> str:
        """A number in the format of most weights: a fused node takes and gives it, and has no constants of its own."""
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(self.float_type))
        limits = np.finfo(dtype) if dtype.kind == "f" else None
        held = value if limits is None else max(value, float(limits.min))
        return self.constant(name, np.array(held, dtype))

    def unsqueezed(self, name: str, out: str, axis: int) -> onnx.NodeProto:
        if self.opset < 13:
            return helper.make_node("Unsqueeze", [name], [out], axes=[axis])
        return helper.make_node("Unsqueeze", [name, self.constant(f"{out}/axis", np.array([axis]))], [out])

    def tensor(self, name: str) -> np.ndarray | None:
        """The value of an initializer."""
        held = next((tensor for tensor in self.graph.initializer if tensor.name == name), None)
        return None if held is None else numpy_helper.to_array(held)
