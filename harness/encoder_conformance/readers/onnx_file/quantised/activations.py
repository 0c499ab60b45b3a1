"""Activations that a fixed scale rounds to one value, or cuts off: errors by themselves, whatever the file gives."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from encoder_conformance import Tensors
from encoder_conformance.protocol.quantised import RoundedAway
from encoder_conformance.readers.onnx_file.graph.execution import ModelRunner
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import input_at, leading_to, node_label
from encoder_conformance.spec.axes import Array

_NEAR = 30.0
"""Scores below the largest of their row by more than this have no weight, as what is hidden has none."""
_SPREAD = 0.1
"""How far apart the scores of a row are at least, for that weights tell keys apart."""
_UNIFORM = 0.9
"""Share of the rows of scores that are rounded to one value."""
_CUT_OFF = 0.1
"""Relative error of an activation by what is cut off of it alone: a range of 2 standard deviations makes 0.11."""
_HIDDEN = -1e4
"""What is added to hidden scores is this low, or lower; the range of a scale need not reach it."""
_BEFORE_SOFTMAX = ("MatMul", "Gemm", "Einsum", "MatMulInteger", "Softmax")


@dataclass(frozen=True)
class FixedRounding:
    """A QuantizeLinear of an activation by a fixed scale: of a number, or of one for each channel."""

    node: onnx.NodeProto
    scale: Array
    zero: Array

    @property
    def range(self) -> tuple[float, float]:
        """The least and the largest number that it leaves as it is, of one scale."""
        limits = np.iinfo(self.zero.dtype)
        low, high = (
            float((limit - int(self.zero.reshape(-1)[0])) * self.scale.reshape(-1)[0])
            for limit in (limits.min, limits.max)
        )
        return low, high


def fixed_roundings(graph: Graph) -> list[FixedRounding]:
    """Those of one scale, which the file holds, and of integers of 8 or 16 bits."""
    held = {tensor.name: tensor for tensor in graph.original.graph.initializer}
    found = []
    for node in graph.original.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in held or node.input[1] not in held:
            continue
        scale, named = numpy_helper.to_array(held[node.input[1]]), input_at(node, 2)
        zero = numpy_helper.to_array(held[named]) if named in held else np.zeros(1, np.uint8)
        if scale.size == 1 and zero.dtype.kind in "iu":
            found.append(FixedRounding(node, scale, zero))
    return found


def rounded_away(graph: Graph, feeds: Tensors) -> Iterator[RoundedAway]:
    """What rounding loses of the activations of these inputs. Where these are out of the range that an input of the
    file was calibrated for, nothing that saturates behind it says anything of the file. Raises ExecutionError."""
    roundings = fixed_roundings(graph)
    if not roundings:
        return
    needed = [name for each in roundings for name in (each.node.input[0], each.node.output[0])]
    values = {**feeds, **ModelRunner(graph.original).values(needed, feeds)}
    scores, inputs = _scores(graph), {info.name for info in graph.inputs}
    is_beyond = any(each.node.input[0] in inputs and _cut_off(each, values) for each in roundings)
    for each in roundings:
        problem = _lost(each, values, scores=each.node.output[0] in scores)
        if problem := problem or ("" if is_beyond else _cut_off(each, values)):
            yield RoundedAway(node=node_label(each.node), scale=each.node.input[1], problem=problem)


def _scores(graph: Graph) -> set[str]:
    """The values on the ways from the products before each softmax to that."""
    makers = {output: node for node in graph.original.graph.node for output in node.output if output}
    softmaxes = [node.input[0] for node in graph.original.graph.node if node.op_type == "Softmax"]
    ends = {name for name, node in makers.items() if node.op_type in _BEFORE_SOFTMAX}
    return leading_to(softmaxes, makers, ends) - ends if softmaxes else set()


def _lost(rounding: FixedRounding, values: Tensors, *, scores: bool) -> str:
    """That what tells the numbers of a row apart is rounded to one integer; "" where it is not."""
    value, whole = (values.get(name) for name in (rounding.node.input[0], rounding.node.output[0]))
    if value is None or whole is None or value.ndim < 2 or value.shape[-1] < 2:
        return ""
    rows, integers = value.reshape(-1, value.shape[-1]).astype(np.float64), whole.reshape(-1, value.shape[-1])
    near = np.isfinite(rows) & (rows >= rows.max(-1, keepdims=True) - _NEAR) & (rows > _HIDDEN)
    low, high = (np.where(near, rows, fill) for fill in (np.inf, -np.inf))
    apart = (near.sum(-1) > 1) & (high.max(-1) - low.min(-1) > _SPREAD)
    if not apart.any():
        return ""
    wide = integers.astype(np.int64)
    least = np.where(near, wide, np.iinfo(np.int64).max).min(-1)
    most = np.where(near, wide, np.iinfo(np.int64).min).max(-1)
    uniform = float((least == most)[apart].mean())
    if uniform < _UNIFORM:
        return ""
    step, spread = float(rounding.scale.reshape(-1)[0]), float((high.max(-1) - low.min(-1))[apart].max())
    what = (
        "scores of attention, so that every key has the same weight"
        if scores
        else f"the numbers of {rounding.node.input[0]!r}"
    )
    sizes = f"its step is {step:.3g}, and they are {spread:.3g} apart"
    return f"rounds to one value {uniform:.0%} of the rows of {what}: {sizes}"


def _cut_off(rounding: FixedRounding, values: Tensors) -> str:
    """That much of the numbers lies beyond the range of the scale; "" where little does."""
    value = values.get(rounding.node.input[0])
    if value is None or value.dtype.kind != "f":
        return ""
    numbers = value.astype(np.float64)
    numbers = numbers[np.isfinite(numbers) & (numbers > _HIDDEN)]
    low, high = rounding.range
    beyond = np.maximum(numbers - high, 0.0) + np.maximum(low - numbers, 0.0)
    size = np.sqrt(np.mean(np.square(numbers))) if numbers.size else 0.0
    error = float(np.sqrt(np.mean(np.square(beyond))) / size) if size else 0.0
    if error < _CUT_OFF:
        return ""
    name, share = rounding.node.input[0], float((beyond > 0).mean())
    far = f"{share:.1%} of the numbers of {name!r} lie beyond {low:.3g} … {high:.3g}"
    return f"saturates: {far}, and what is cut off comes to {error:.2g} of them"
