"""Recognises the norms of a graph: which operation, which of its constants, and what is near a norm and is none."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import chain, permutations

import numpy as np

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, node_label
from encoder_conformance.readers.onnx_file.graph.operators import IDENTITIES, MOVES
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Expression,
    Linear,
    Operation,
    Sum,
    TracedNorm,
    UnsupportedPattern,
    View,
    WeightSource,
    whole,
)
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.readers.onnx_file.tracing.norms import NormOperand, norm_of
from encoder_conformance.readers.onnx_file.tracing.value_table import ValueTable
from encoder_conformance.spec.axes import Array, Elementwise

_ACTIVATIONS = ("Relu", "Gelu", "LeakyRelu", "Elu", "Selu", "Celu", "Tanh", "Sigmoid", "Softplus", "HardSwish", "Mish")
"""Operators of ONNX that are one by themselves."""
Function = Callable[..., Array]
"""Values of an operation, and optionally other values for named constants → the value that is recognised."""


def norm_view(table: ValueTable, name: str, expression: Expression, function: Function) -> View:
    operation = expression.operation
    width = expression.width or operation.shape[-1]
    operands = norm_operands(table, name, operation, width)
    shape = operation.shape[0] * operation.shape[-1] // width, width
    try:
        form = norm_of(function, lambda values: values.reshape(-1)[expression.index], shape, operands)
        if form.error:
            _refuse_shifted(expression, function, shape, operands)
    except UnsupportedPattern as reason:
        _refuse_shifted(expression, function, shape, operands)
        if expression.width and _has_gain_of_each_head(table, name, expression, function, shape):
            raise UnsupportedPattern(f"at {name!r}", "head_gains") from None
        if _has_second_gain(expression, function, shape, operands):
            raise UnsupportedPattern(f"at {_before_moves(table, name)!r}", "second_gain") from None
        made = _before_moves(table, name)
        if _is_norm_beside_itself(expression, function, shape, operands):
            raise UnsupportedPattern(f"at {made!r}", "left_out") from None
        last = table.graph.producers[made].op_type if made in table.graph.producers else ""
        feature: Feature | None = "softmax_of_features" if last == "Softmax" else reason.feature
        if last in _ACTIVATIONS:
            raise UnsupportedPattern(f"{last} before a map, at {made!r}", "activated") from None
        raise UnsupportedPattern(f"{reason} (at {made!r})", feature) from None
    sources = (source.key() if source else b"" for source in (form.gain, form.shift))
    key = id(operation), form.kind, form.epsilon, expression.width, *sources
    norm = TracedNorm(operation.shape, name, whole(operation), form, expression.width, _before_moves(table, name))
    return View(table.intern(key, norm), expression.index, form.factor)


def _refuse_shifted(
    expression: Expression, function: Function, shape: tuple[int, int], operands: list[NormOperand]
) -> None:
    """Raises UnsupportedPattern for a norm of what a vector of its own is added to."""
    added_to = expression.operation
    sides = added_to.sides if isinstance(added_to, Sum) else (added_to,)
    for shift in (each for each in operands if each.name and each.source.value.size == shape[1]):
        others = [each for each in operands if each is not shift]

        error = np.inf
        with suppress(UnsupportedPattern):
            error = norm_of(
                _less(function, shift), lambda values: values.reshape(-1)[expression.index], shape, others
            ).error
        if not error:
            has_bias = any(isinstance(each, Linear) and each.bias is not None for each in sides)
            raise UnsupportedPattern(f"{shift.name!r}, before a norm", "second_bias" if has_bias else "added")


def _less(function: Function, shift: NormOperand) -> Function:
    """The same of values to which the vector is not added."""
    return lambda values, put: function(values - shift.source.value, put)


def _before_moves(table: ValueTable, name: str) -> str:
    """The value that this one is, rearranged."""
    while (node := table.graph.producers.get(name)) is not None and node.op_type in MOVES | IDENTITIES:
        name = node.input[0]
    return name


def _has_gain_of_each_head(
    table: ValueTable, name: str, expression: Expression, function: Function, shape: tuple[int, int]
) -> bool:
    """Whether it is a norm of each head's features but for constants that differ from one head to the next."""
    F = expression.operation.shape[-1]
    operands = norm_operands(table, name, expression.operation, expression.width)
    gains = {each.name: np.ones(each.shape) for each in operands if each.name and each.source.value.size == F}
    others = [each for each in operands if each.name not in gains]
    if not gains:
        return False

    def without(values: Elementwise, put: Mapping[str, Array] = {}) -> Elementwise:
        return function(values, {**put, **gains})

    try:
        norm_of(without, lambda values: values.reshape(-1)[expression.index], shape, others)
    except UnsupportedPattern:
        return False
    return True


def _has_second_gain(
    expression: Expression, function: Function, shape: tuple[int, int], operands: list[NormOperand]
) -> bool:
    """Whether it is a norm but for a vector that it is multiplied by once more, and one that is added to that."""
    vectors = [each for each in operands if each.name and each.source.value.size == shape[1]]

    def is_norm_with(known: Mapping[str, Array]) -> bool:
        def of(values: Elementwise, put: Mapping[str, Array] = {}) -> Elementwise:
            return function(values, {**put, **known})

        others = [each for each in operands if each.name not in known]
        with suppress(UnsupportedPattern):
            return not norm_of(of, lambda values: values.reshape(-1)[expression.index], shape, others).error
        return False

    without = ({gain.name: np.ones(gain.shape)} for gain in vectors)
    pairs = permutations(vectors, 2)
    without_both = ({gain.name: np.ones(gain.shape), shift.name: np.zeros(shift.shape)} for gain, shift in pairs)
    return any(map(is_norm_with, chain(without, without_both)))


def _is_norm_beside_itself(
    expression: Expression, function: Function, shape: tuple[int, int], operands: list[NormOperand]
) -> bool:
    """Whether it is a norm of values that are added to it."""

    def rearranged(values: Elementwise) -> Elementwise:
        return np.asarray(values.reshape(-1)[expression.index])

    def norm(values: Elementwise, put: Mapping[str, Array] = {}) -> Elementwise:
        return function(values, put) - rearranged(values)

    with suppress(UnsupportedPattern):
        return not norm_of(norm, rearranged, shape, operands).error
    return False


def _repeated_vector(source: WeightSource, F: int) -> WeightSource | None:
    """The row of a constant [..., F] whose rows are all the same: a vector that was expanded before it is used."""
    value = source.value
    if value.ndim < 2 or value.shape[-1] != F or value.size == F or not (value == value.reshape(-1, F)[0]).all():
        return None
    return source.reshape(-1).take(np.arange(F))


def norm_operands(table: ValueTable, name: str, operation: Operation, width: int) -> list[NormOperand]:
    """The other operands of a function of `operation`: floating-point constants, and each node's own epsilon."""
    found: dict[tuple[str, str], NormOperand] = {}
    for node in table.nodes_between(name, operation):
        current = node.output[0]
        if "Normalization" in node.op_type:
            epsilon = np.array(attributes_of(node).get("epsilon", 1e-5))
            found["", current] = NormOperand("", WeightSource(epsilon, None), f"{node_label(node)}, attribute epsilon")
        for each in node.input:
            if each and each not in table.values and table.number(each).dtype.kind == "f":
                source = table.source(each)
                evidence = f"constant {each!r} at {node_label(node)}"
                shape, vector = source.value.shape, _repeated_vector(source, width)
                found[each, current] = NormOperand(each, vector or source.reshape(-1), evidence, shape)
    return list(found.values())
