"""The axes that a reduction, a norm or a softmax runs along, and the rows of an operation that they are."""

from collections.abc import Callable
from math import prod

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of
from encoder_conformance.readers.onnx_file.graph.operators import REDUCTIONS
from encoder_conformance.readers.onnx_file.tracing.expressions import Operation, UnsupportedPattern, rows_of
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.spec.axes import Array


def axes_of(node: onnx.NodeProto, rank: int, opset: int, number: Callable[[str], Array]) -> tuple[int, ...]:
    """The axes that the rows of a reduction, a norm or a softmax run along; `number` is the value of a constant."""
    attributes = attributes_of(node)
    if node.op_type.startswith("Global"):
        return tuple(range(2, rank))
    if node.op_type in REDUCTIONS:
        axes = attributes.get("axes")
        if len(node.input) > 1 and node.input[1]:
            axes = number(node.input[1]).reshape(-1).tolist()
        return tuple(sorted(int(a) % rank for a in axes)) if axes else tuple(range(rank))
    if node.op_type == "MeanVarianceNormalization":
        return tuple(sorted(int(a) % rank for a in attributes.get("axes", (0, 2, 3))))
    old_softmax = node.op_type in ("Softmax", "LogSoftmax") and opset < 13
    axis = int(attributes.get("axis", 1 if old_softmax else -1)) % rank
    if old_softmax or (node.op_type.endswith("Normalization") and node.op_type != "LpNormalization"):
        return tuple(range(axis, rank))
    return (axis,)


def row_axis(operation: Operation, index: Array, axes: tuple[int, ...]) -> tuple[int, int, Array]:
    """The axis of the operation along which a group of elements of `index` [*axes] is a row, its width where it is a
    part of one, and each group's row, the axes kept as 1."""
    last = np.moveaxis(index, axes, range(index.ndim - len(axes), index.ndim))
    grouped = last.reshape(-1, prod(index.shape[a] for a in axes))
    distinct = bool((np.diff(np.sort(grouped, axis=1)) > 0).all())
    n, F = grouped.shape[1], operation.shape[-1]
    ways = [(axis, 0) for axis in (-1, -2)] if len(operation.shape) == 4 else [(-1, 0)]
    if len(operation.shape) == 2 and 1 < n < F and F % n == 0:
        ways.append((-1, n))
    for axis, width in ways:
        rows = rows_of(operation, grouped, axis, width)
        if distinct and n == (width or operation.shape[axis]) and (rows == rows[:, :1]).all():
            kept = tuple(1 if a in axes else size for a, size in enumerate(index.shape))
            return axis, width, rows[:, 0].reshape(kept)
    what = "scores" if len(operation.shape) == 4 else "features"
    reason = f"a reduction or norm over something else than the {what} of one row"
    raise UnsupportedPattern(reason, _across(operation, grouped))


def _across(operation: Operation, grouped: Array) -> Feature | None:
    """What it is where each group [groups, elements] is of features of several positions, or of fewer than all of one;
    or, of scores [B, H, S, S], of those of one query and key, by all heads or in all items."""
    if len(operation.shape) != 4:
        F = operation.shape[-1]
        across = grouped.max(1) // F > grouped.min(1) // F
        is_part = grouped.shape[1] < F and not bool(across.any())
        return "norm_of_part" if is_part else "pooled" if bool(across.all()) else None
    places = np.unravel_index(grouped, operation.shape)
    across = {axis for axis, at in enumerate(places) if (at != at[:, :1]).any()}
    if not across <= {0, 1}:
        return None
    return "softmax_over_items" if 0 in across else "softmax_over_heads"
