"""A key and a value of each head beside those of the positions (E-44), as a Concat gives them to a map's own."""

from collections.abc import Mapping

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Appended,
    Expression,
    Linear,
    Mixture,
    Operation,
    RowMap,
    Scores,
    Sum,
    TracedInput,
    TracedNorm,
    UnsupportedPattern,
    Value,
    View,
    Weights,
    whole,
)
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.readers.onnx_file.tracing.softmax import biases_positions, hides
from encoder_conformance.readers.onnx_file.tracing.value_table import ValueTable
from encoder_conformance.spec.axes import BHST

_MORE_OF: Mapping[type[Operation], Feature] = {
    TracedInput: "padded",
    Sum: "padded",
    Linear: "own_keys",
    Appended: "own_keys",
    Scores: "no_softmax",
    Weights: "second_softmax",
}
"""What gets more of its like, that is not x's → what that shows."""
_PROJECTED = Linear, TracedNorm, RowMap
"""What a key or a value is: of a map, normed by head, or turned."""


def appended(table: ValueTable, node: onnx.NodeProto, values: Mapping[str, Value]) -> View:
    """What a Concat makes of a value that depends on x and of one that does not. Raises UnsupportedPattern for anything
    but one place for the S of x, the same in each item."""
    given = next((name for name, value in values.items() if isinstance(value, View)), None)
    named = next(value for value in values.values() if isinstance(value, View | Expression | Mixture))
    other = UnsupportedPattern(
        f"{node.op_type} of x and something that does not depend on it", _MORE_OF.get(type(named.operation))
    )
    if node.op_type != "Concat" or len(node.input) != 2 or len(values) != 2 or given is None:
        raise other
    beside = next(name for name in values if name != given)
    view, leads = values[given], node.input[0] == beside
    assert isinstance(view, View)
    axis = attributes_of(node)["axis"] % view.index.ndim
    if not isinstance(view.operation, _PROJECTED) or view.factor != 1 or table.number(beside).shape[axis] != 1:
        raise other
    F, S = view.operation.shape[-1], table.S
    rows, features = view.index // F, np.take(view.index % F, [0], axis)
    places, item = np.moveaxis(rows % S, axis, -1), np.take(rows // S, [0], axis)
    if view.index.shape[axis] != S or not (places == np.arange(S)).all():
        raise other
    if not (view.index % F == features).all() or not (rows // S == item).all():
        raise other
    vector, source = np.zeros(F, np.int64), table.source(beside).reshape(-1)
    seen, first = np.unique(features, return_index=True)
    vector[seen] = first
    if not np.array_equal(source.value, source.value[vector[features.reshape(-1)]]):
        raise other
    beside_places = (item * (S + 1) + (0 if leads else S)) * F + features
    of_places = (rows // S * (S + 1) + rows % S + leads) * F + view.index % F
    made = Appended((table.B * (S + 1), F), node.output[0], whole(view.operation), source.take(vector), leads)
    ordered = (beside_places, of_places) if leads else (of_places, beside_places)
    return View(made, np.concatenate(ordered, axis))


def of_positions(scores: Scores, constant: BHST | None, axis: int) -> BHST | None:
    """What is added to the scores of the positions' keys; None for nothing. Raises UnsupportedPattern where something
    is added to the score of an appended key, or hides it."""
    if constant is None or (keys := scores.appended) is None:
        return constant
    column, own = ([0], slice(1, None)) if keys.leads else ([-1], slice(None, -1))
    if hides(np.take(constant, column, axis)).any() or biases_positions(constant):
        raise UnsupportedPattern(f"at {scores.name!r} numbers are added to the score of a key of its own", "own_keys")
    rest = np.moveaxis(np.moveaxis(constant, axis, -1)[..., own], -1, axis)
    return rest if hides(rest).any() else None
