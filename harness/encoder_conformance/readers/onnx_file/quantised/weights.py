"""The weights that a file stores as integers: the numbers that they stand for, and what they were rounded from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
from onnx import numpy_helper

from encoder_conformance import Tensors
from encoder_conformance.readers.onnx_file.graph.dequantised import RealWeight, dequantised, real_weight
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.integers import cast_weights
from encoder_conformance.readers.onnx_file.graph.nodes import input_at
from encoder_conformance.spec.axes import Array


@dataclass(frozen=True)
class FloatWeight:
    """A weight in float. `is_source`: it is the source's own; else the numbers that the file's integers stand for."""

    value: Array
    is_source: bool


class StoredWeights:
    """The integer weights of a file, and the tensors of its source among which theirs are found, by value."""

    def __init__(self, graph: Graph, source: Iterable[Array] = ()) -> None:
        self._graph = graph
        self._held = {tensor.name: tensor for tensor in graph.original.graph.initializer}
        self._source: dict[tuple[int, ...], list[Array]] = {}
        for value in source:
            for each in (value, value.T) if value.ndim == 2 else (value,):
                self._source.setdefault(each.shape, []).append(each)

    @cached_property
    def _lowered(self) -> Mapping[str, onnx.TensorProto]:
        return self._graph.initializers

    def array(self, name: str) -> Array | None:
        """The value of an initializer."""
        return numpy_helper.to_array(self._held[name]) if name in self._held else None

    def in_float(self, weight: RealWeight) -> FloatWeight:
        """What it was rounded from, where the source has that, whatever its scale makes of it."""
        of_shape = self._source.get(weight.value.shape, [])
        fitting = [each for each in of_shape if weight.is_rounded_from(each)]
        fitting = fitting or [each for each in of_shape if weight.goes_the_way_of(each)]
        if not fitting:
            return FloatWeight(weight.value, False)
        return FloatWeight(min(fitting, key=lambda each: float(np.abs(weight.value - each).sum())), True)

    def of_dequantised(self, node: onnx.NodeProto) -> FloatWeight | None:
        """A DequantizeLinear of initializers."""
        real = real_weight(node, self._held)
        return None if real is None else self.in_float(real)

    def of_cast(self, name: str) -> FloatWeight | None:
        """A value that Cast and Mul make of integers, without a zero point between them."""
        if name not in self._cast:
            return None
        whole, scale = (numpy_helper.to_array(tensor) for tensor in self._cast[name])
        real = (whole.astype(np.float64) * scale).astype(np.float32)
        return self.in_float(RealWeight(real, np.abs(np.asarray(scale, np.float64))))

    @cached_property
    def _cast(self) -> Mapping[str, tuple[onnx.TensorProto, onnx.TensorProto]]:
        taken = {node.input[0] for node in self._graph.original.graph.node if node.op_type == "Sub"}
        casts = {node.input[0]: node.output[0] for node in self._graph.original.graph.node if node.op_type == "Cast"}
        found = cast_weights(self._graph.original.graph)
        return {name: held for name, held in found.items() if casts.get(held[0].name, "") not in taken}

    def of_columns(self, whole: str, scale: str, zero: str) -> FloatWeight | None:
        """A matrix [K, N] with one scale, or one for each column."""
        held, by = self.array(whole), self.array(scale)
        return None if held is None or by is None else self.in_float(dequantised(held, by, self.array(zero), 1))

    def of_product(self, node: onnx.NodeProto) -> FloatWeight | None:
        """The matrix of a MatMulInteger, or of a packed product, as the lowered graph has it."""
        names = {
            "MatMulInteger": f"{input_at(node, 1)}/{node.output[0]}/real",
            "MatMulNBits": f"{node.output[0]}/weight",
        }
        held, stored = self._lowered.get(names[node.op_type]), self._graph.integers.get(names[node.op_type])
        if held is None or stored is None:
            return None
        real = RealWeight(numpy_helper.to_array(held).astype(np.float32), np.array(stored.step))
        return self.in_float(real)


def tensors_of(model: onnx.ModelProto) -> Tensors:
    """The numbers of a float file: its initializers of floating-point numbers, and its constants, by name."""
    found = {tensor.name: tensor for tensor in model.graph.initializer}
    return {name: numpy_helper.to_array(tensor) for name, tensor in found.items() if len(tensor.dims)}
