"""Heads that are computed one by one, each by nodes of its own, and put together by a Concat: as one attention."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Activation,
    Context,
    Linear,
    Operation,
    Rotation,
    RowMap,
    Scores,
    UnsupportedPattern,
    View,
    Weights,
    WeightSource,
)
from encoder_conformance.spec.axes import Array

_CLOSE = 1e-5


def put_together(views: Sequence[View]) -> list[View]:
    """The same values as views of one operation: maps of one input become one map, and the contexts of heads that of
    one attention, whose queries, keys and values are such maps. Raises UnsupportedPattern for other operations."""
    operations = list({id(view.operation): view.operation for view in views}.values())
    whole = _contexts if all(isinstance(each, Context) for each in operations) else _maps
    together, firsts = whole(operations)
    F, start = together.shape[-1], dict(zip(map(id, operations), firsts, strict=True))
    found = []
    for view in views:
        rows, features = divmod(view.index, view.operation.shape[-1])
        found.append(replace(view, operation=together, index=rows * F + start[id(view.operation)] + features))
    return found


def summed(one: View, other: View, name: str) -> View | None:
    """The sum of what maps make of heads, each of its own heads, as one map of all: x₀ W₀ + x₁ W₁ is [x₀ x₁] [W₀; W₁].
    None where it is no such sum, or both maps have a bias: no layer has two there. Raises UnsupportedPattern for heads
    that differ in more than their weights."""
    sides = [view.operation for view in (one, other)]
    maps = [side for side in sides if isinstance(side, Linear) and _is_of_heads(side)]
    biases = [side.bias for side in maps if side.bias is not None]
    alike = one.factor == other.factor == 1 and np.array_equal(one.index, other.index)
    if len(maps) < len(sides) or len(biases) > 1 or not alike or sides[0].shape != sides[1].shape:
        return None
    together, _ = _contexts([each.of.operation for each in maps])
    weight = _turned(_beside([_turned(each.weight) for each in maps]))
    bias = biases[0] if biases else None
    return View(Linear(maps[0].shape, name, _all_of(together), weight, bias), one.index)


def _is_of_heads(linear: Linear) -> bool:
    """Whether it takes all that some heads give, as they lie."""
    return isinstance(linear.of.operation, Context) and linear.heads == 1 and _is_whole(linear.of)


def _turned(source: WeightSource) -> WeightSource:
    return source.arranged(np.transpose)


def _maps(operations: Sequence[Operation]) -> tuple[Operation, list[int]]:
    """One operation on features [N, F] with the features of all of these, and the first feature of each in it."""
    first = operations[0]
    if all(each is first for each in operations):
        return first, [0] * len(operations)
    starts = [0, *np.cumsum([each.shape[-1] for each in operations])]
    shape = first.shape[0], int(starts[-1])
    if isinstance(first, Activation | RowMap):
        alike = [each for each in operations if isinstance(each, Activation | RowMap) and _does_as(first, each)]
        if len(alike) == len(operations) and all(_is_whole(each.of) for each in alike):
            inner, inner_starts = _maps([each.of.operation for each in alike])
            if inner_starts == starts[:-1]:
                return replace(first, shape=shape, of=_all_of(inner)), starts[:-1]
    linear = [each for each in operations if isinstance(each, Linear) and each.heads == 1]
    if len(linear) < len(operations) or not all(_is_beside(*two) for two in pairwise(linear)):
        raise UnsupportedPattern("Concat of different things", "side_by_side")
    biases = [each.bias for each in linear if each.bias is not None]
    weight, bias = _beside([each.weight for each in linear]), _beside(biases) if biases else None
    return Linear(shape, first.name, linear[0].of, weight, bias, 1, linear[0].taken), starts[:-1]


def _does_as(one: Activation | RowMap, other: Activation | RowMap) -> bool:
    """Whether both apply the same activation to each feature, or the same rotation to each head's."""
    if isinstance(one, Activation) and isinstance(other, Activation):
        return (one.function, one.formula) == (other.function, other.formula)
    rotated = isinstance(one, RowMap) and isinstance(one.form, Rotation)
    return rotated and isinstance(other, RowMap) and one.form == other.form  # type: ignore[union-attr]


def _is_beside(one: Linear, other: Linear) -> bool:
    """Whether both are maps of the same features, with a bias or without."""
    same = one.of.operation is other.of.operation and np.array_equal(one.of.index, other.of.index)
    taken = one.taken is other.taken or (
        one.taken is not None and other.taken is not None and np.array_equal(one.taken, other.taken)
    )
    return same and taken and one.of.factor == other.of.factor and (one.bias is None) == (other.bias is None)


def _beside(sources: Sequence[WeightSource]) -> WeightSource:
    """Weights [in, out] or biases [out], one behind the other."""
    numbers = [each.elements for each in sources]
    known = [each for each in numbers if each is not None]
    elements = np.concatenate(known, -1) if len(known) == len(numbers) else None
    return WeightSource(np.concatenate([each.value for each in sources], -1), elements, sources[0].integers)


def _is_whole(view: View) -> bool:
    return view.factor == 1 and np.array_equal(view.index.reshape(-1), np.arange(np.prod(view.operation.shape)))


def _all_of(operation: Operation) -> View:
    return View(operation, np.arange(np.prod(operation.shape)).reshape(operation.shape))


def _contexts(operations: Sequence[Operation]) -> tuple[Operation, list[int]]:
    """One context [N, F] of all heads, and the first feature of each of these in it."""
    contexts = [each for each in operations if isinstance(each, Context)]
    weights = _weights([each.of for each in contexts])
    value, heads = _side([each.value for each in contexts], [each.value_heads for each in contexts])
    starts = [0, *np.cumsum([each.shape[-1] for each in contexts])]
    shape = contexts[0].shape[0], int(starts[-1])
    return Context(shape, contexts[0].name, weights, value, heads), starts[:-1]


def _weights(each: Sequence[Weights]) -> Weights:
    first = each[0]
    alike = all(
        abs(other.scale - first.scale) <= _CLOSE * abs(first.scale)
        and (other.query_first, other.cap, other.near) == (first.query_first, first.cap, first.near)
        and not other.added
        for other in each
    )
    if not alike or len({id(other) for other in each}) < len(each):
        raise UnsupportedPattern("Concat of heads that differ in more than their weights")
    scores = [other.of for other in each]
    query, query_heads = _side([one.first for one in scores], [one.first_heads for one in scores])
    key, key_heads = _side([one.second for one in scores], [one.second_heads for one in scores])
    B, S = first.shape[0], first.shape[-1]
    shape = B, len(query_heads), S, S
    one = Scores(shape, scores[0].name, query, key, query_heads, key_heads, scores[0].fused_in)
    return replace(first, shape=shape, of=one, constant=_constant(each))


def _constant(each: Sequence[Weights]) -> Array | None:
    """What the file adds to the scores [B, H, Q, K]; None where it adds nothing to any."""
    if all(weights.constant is None for weights in each):
        return None
    added = (np.zeros(weights.shape) if weights.constant is None else weights.constant for weights in each)
    return np.concatenate([*added], axis=1)


def _side(views: Sequence[View], heads: Sequence[Array]) -> tuple[View, Array]:
    """What the products of all heads take of one side, and the features [H, d] of each head in it."""
    operations = list({id(view.operation): view.operation for view in views}.values())
    together, firsts = _maps(operations)
    start = dict(zip(map(id, operations), firsts, strict=True))
    if len({each.shape[-1] for each in heads}) > 1:
        raise UnsupportedPattern("Concat of heads of different sizes")
    features = np.concatenate([each + start[id(view.operation)] for view, each in zip(views, heads, strict=True)])
    return _all_of(together), features
