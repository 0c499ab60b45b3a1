"""A linear map's bias, as a graph adds it: to the features that a view shows, behind a sum or before it."""

from dataclasses import replace

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Expression,
    Linear,
    Operation,
    Sum,
    UnsupportedPattern,
    View,
    WeightSource,
)
from encoder_conformance.readers.onnx_file.tracing.value_table import ValueTable
from encoder_conformance.spec.axes import Array


def takes_bias(table: ValueTable, view: View, other: str) -> bool:
    """Whether adding this constant, of which no input is a part, to the view gives a linear map its bias."""
    linear = view.operation
    if isinstance(linear, Sum):
        linear = next((side for side in linear.sides if _unbiased(side)), linear)
    value = table.number(other)
    if not _unbiased(linear) or value.size < 2 or view.factor != 1:
        one_of_one = value.size == 1 == view.operation.shape[-1]
        return one_of_one and _unbiased(linear) and table.elements(other) is not None
    needed = table.graph.needed_by([other])
    is_last = value.shape[-1] == view.index.shape[-1]
    return (is_last or is_of_features(value, view)) and needed.isdisjoint(each.name for each in table.graph.inputs)


def with_bias(node: onnx.NodeProto, view: View, source: WeightSource) -> View:
    """The view with a bias [*broadcast to the view] in its linear map, of the features that the view shows.

    Raises UnsupportedPattern where the bias differs from one position to the next.
    """
    operation, F = view.operation, view.operation.shape[-1]
    shape = np.broadcast_shapes(view.index.shape, source.value.shape)
    features = np.broadcast_to(view.index % F, shape).reshape(-1)
    present, first = np.unique(features, return_index=True)
    spread = source.arranged(lambda values: np.broadcast_to(values, shape).reshape(-1))
    bias = spread.take(first)
    if not np.array_equal(spread.value, bias.value[np.searchsorted(present, features)]):
        raise UnsupportedPattern("a constant is added that differs from one position to the next")
    index = np.broadcast_to(view.index, shape)
    if isinstance(operation, Sum):
        one, other = operation.one, operation.other
        if not _unbiased(other.operation):
            one, other = other, one
        assert isinstance(other.operation, Linear)
        other = replace(other, operation=replace(other.operation, bias=bias))
        return View(Sum(operation.shape, node.output[0], one, other), index)
    assert isinstance(operation, Linear)
    if operation.heads > 1:
        present, bias = present[: F // operation.heads], bias.take(slice(F // operation.heads))
        weight, width = operation.weight, F
    else:
        whole = len(present) == F
        weight = operation.weight if whole else operation.weight.take(slice(None), present)
        width = len(present)
        index = index // F * width + np.searchsorted(present, index % F)
    shape, heads = (operation.shape[0], width), operation.heads
    mapped = Linear(shape, node.output[0], operation.of, weight, bias, heads, operation.taken)
    return View(mapped, index)


def is_of_features(value: Array, view: View | Expression) -> bool:
    """Whether a constant, broadcast to what the view shows, is one number for each feature, on whichever axis."""
    if value.ndim > view.index.ndim or any(
        size not in (1, due) for size, due in zip(value.shape[::-1], view.index.shape[::-1], strict=False)
    ):
        return False
    features = (view.index % view.operation.shape[-1]).reshape(-1)
    present, first, at = np.unique(features, return_index=True, return_inverse=True)
    spread = np.broadcast_to(value, view.index.shape).reshape(-1)
    return len(present) > 1 and np.array_equal(spread, spread[first][at])


def _unbiased(operation: Operation) -> bool:
    return isinstance(operation, Linear) and operation.bias is None
