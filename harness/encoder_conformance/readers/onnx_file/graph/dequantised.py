"""The numbers that the integers of a weight stand for."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, input_at, replace_nodes
from encoder_conformance.spec.axes import Array

_STEPS = 1.01
"""Steps by which a rounded number may be off: half of one, and another half where the zero point is rounded, too."""


_ALONG = 0.95
"""The cosine of what four bits leave of a slice is more, and that of two drawn ones is near 0."""


@dataclass(frozen=True)
class RealWeight:
    """The numbers that integers stand for, and the distance of two neighbours, which broadcasts to them."""

    value: Array
    step: Array

    def is_rounded_from(self, other: Array) -> bool:
        """Whether each number is as near to the other's as rounding leaves it."""
        if other.shape != self.value.shape or other.dtype.kind != "f":
            return False
        return bool((np.abs(self.value - other) <= _STEPS * self.step + 1e-12).all())

    def goes_the_way_of(self, other: Array) -> bool:
        """Whether most rows or most columns of a matrix are the other's, each by a factor: a wrong scale leaves the
        directions of what it multiplies."""
        if other.shape != self.value.shape or other.ndim != 2 or other.dtype.kind != "f":
            return False
        return any(_alike(self.value, other, axis) > _ALONG for axis in (0, 1))


def _alike(one: Array, other: Array, axis: int) -> float:
    """The median of the cosines of the slices along an axis of two matrices [K, N]; 0 of those without a length."""
    first, second = one.astype(np.float64), other.astype(np.float64)
    lengths = np.sqrt(np.square(first).sum(axis) * np.square(second).sum(axis))
    cosines = (first * second).sum(axis) / np.where(lengths, lengths, np.inf)
    return float(np.median(cosines)) if cosines.size else 0.0


def dequantised(whole: Array, scale: Array, zero: Array | None, axis: int, block: int = 0) -> RealWeight:
    """The numbers of integers, by one scale [], by one of each slice along an axis [slices], or of each block along it,
    [..., blocks, ...] in the place of that axis. The zero point has the shape of the scale."""
    if scale.ndim == 1 and scale.size > 1:
        shape = [1] * whole.ndim
        shape[axis] = scale.size
        scale = scale.reshape(shape)
        zero = None if zero is None else zero.reshape(shape)
    elif scale.ndim > 1 and block:
        kept = slice(0, whole.shape[axis])
        scale = np.repeat(scale, block, axis=axis).take(range(*kept.indices(whole.shape[axis])), axis=axis)
        zero = None if zero is None else np.repeat(zero, block, axis=axis).take(range(whole.shape[axis]), axis=axis)
    wide = scale.astype(np.float64)
    less = whole.astype(np.float64) - (0.0 if zero is None else zero.astype(np.float64))
    return RealWeight((less * wide).astype(np.float32), np.abs(wide))


def real_weight(node: onnx.NodeProto, held: Mapping[str, onnx.TensorProto]) -> RealWeight | None:
    """What a DequantizeLinear gives of initializers; None of anything else."""
    named = (node.input[0], input_at(node, 1), input_at(node, 2))
    if named[0] not in held or named[1] not in held:
        return None
    whole, scale = (numpy_helper.to_array(held[name]) for name in named[:2])
    zero = numpy_helper.to_array(held[named[2]]) if named[2] in held else None
    attributes = attributes_of(node)
    axis = int(attributes.get("axis", 1)) if whole.ndim > 1 else 0
    return dequantised(whole, scale, zero, axis, int(attributes.get("block_size", 0)))


def without_integers(graph: onnx.GraphProto) -> None:
    """Puts the numbers of weights in the place of what reads their integers, and Cast, Sub, Mul in that of what reads
    other integers by one scale; in place. ONNX's reference has no DequantizeLinear before opset 19."""
    held, kept = {tensor.name: tensor for tensor in graph.initializer}, list[onnx.NodeProto]()
    for node in graph.node:
        if node.op_type != "DequantizeLinear":
            kept.append(node)
        elif (real := real_weight(node, held)) is not None:
            graph.initializer.append(numpy_helper.from_array(real.value, node.output[0]))
        else:
            kept += _read_by_one_scale(node, held, graph) or [node]
    replace_nodes(graph, kept)


def _read_by_one_scale(
    node: onnx.NodeProto, held: Mapping[str, onnx.TensorProto], graph: onnx.GraphProto
) -> list[onnx.NodeProto]:
    """The nodes that do the same; none where it has several scales, or such as are computed."""
    out, scale, zero = node.output[0], held.get(node.input[1]), held.get(input_at(node, 2))
    if scale is None or int(np.prod(scale.dims)) != 1:
        return []
    numbers = numpy_helper.to_array(scale).reshape(()), np.zeros((), np.float32)
    if zero is not None:
        numbers = numbers[0], numpy_helper.to_array(zero).astype(np.float32).reshape(())
    for name, number in zip(("scale", "zero"), numbers, strict=True):
        graph.initializer.append(numpy_helper.from_array(number, f"{out}/{name}"))
    return [
        onnx.helper.make_node("Cast", [node.input[0]], [f"{out}/whole"], to=scale.data_type),
        onnx.helper.make_node("Sub", [f"{out}/whole", f"{out}/zero"], [f"{out}/less"]),
        onnx.helper.make_node("Mul", [f"{out}/less", f"{out}/scale"], [out]),
    ]
