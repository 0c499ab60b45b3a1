"""Recognises operations by the values of a function: a scale, an activation, a norm, a softmax.

The function is computed in float64 on probes and compared, so the spelling of a GELU or a LayerNorm does not matter.
"""

from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from functools import cache, partial

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of
from encoder_conformance.readers.onnx_file.graph.operators import FLOAT_TYPES, IDENTITIES, MOVES
from encoder_conformance.readers.onnx_file.tracing.activations import (
    activation_of,
    probe,
)
from encoder_conformance.readers.onnx_file.tracing.appended import of_positions
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Activation,
    Appended,
    Constant,
    Expression,
    Gain,
    Linear,
    Mixture,
    Operation,
    RowMap,
    Scores,
    Sum,
    TracedInput,
    TracedNorm,
    Unknown,
    UnsupportedPattern,
    Value,
    View,
    Weights,
    WeightSource,
    whole,
)
from encoder_conformance.readers.onnx_file.tracing.norms_in_graph import norm_operands, norm_view
from encoder_conformance.readers.onnx_file.tracing.row_maps import row_map
from encoder_conformance.readers.onnx_file.tracing.softmax import biases_positions, softmax_of
from encoder_conformance.readers.onnx_file.tracing.value_table import ValueTable
from encoder_conformance.spec.axes import Array, Elementwise

CLOSE = 1e-5
"""Relative: float32 constants and casts inside a file, and nothing else, separate it from float64."""
_OF_AN_EPSILON = 1e-3
"""The error, on ordinary rows, of a norm whose epsilon stands elsewhere than in a right one."""
Function = Callable[..., Array]
"""Values of an operation, and optionally other values for named constants → the value that is recognised."""


def view_of(table: ValueTable, name: str) -> View:
    """The value as a view of an operation; raises UnsupportedPattern."""
    value = table.value(name)
    if isinstance(value, Expression | Mixture):
        value = table.values[name] = recognise(table, name, value)
    if isinstance(value, Unknown):
        reason = f"{value.reason} ({value.node})" if value.reason else value.node
        raise UnsupportedPattern(reason, value.feature)
    if not isinstance(value, View):
        raise UnsupportedPattern(f"{name!r} does not depend on x")
    return value


def view_if_any(table: ValueTable, name: str) -> Value:
    """The value as a view of an operation where it can be recognised, else as it is."""
    try:
        return view_of(table, name)
    except UnsupportedPattern:
        return table.value(name)


def settle_norm(table: ValueTable, name: str) -> None:
    """Makes of a value that is a norm, up to its epsilon, an operation of its own, before its elements go apart. Raises
    UnsupportedPattern for a norm of queries or keys whose gains differ by head: behind it nobody could tell why."""
    value = table.value(name)
    if isinstance(value, Expression) and value.rowwise and not value.reduced and len(value.operation.shape) == 2:
        try:
            view = recognise(table, name, value)
        except UnsupportedPattern as reason:
            if reason.feature == "head_gains":
                raise
            return
        if isinstance(view.operation, TracedNorm) and view.operation.form.error <= _OF_AN_EPSILON:
            table.values[name] = view


def settle_activation(table: ValueTable, name: str) -> None:
    """Makes of a value that is an activation of features an operation of its own, before they are normed."""
    value = table.value(name)
    if isinstance(value, Expression) and not value.rowwise and len(value.operation.shape) == 2:
        with suppress(UnsupportedPattern):
            view = recognise(table, name, value)
            if isinstance(view.operation, Activation):
                table.values[name] = view


def recognise(table: ValueTable, name: str, expression: Expression | Mixture) -> View:
    """The operation that an expression computes; raises UnsupportedPattern."""
    operation = expression.operation
    function = partial(evaluate, table, name, operation)
    if isinstance(operation, Appended) and (isinstance(expression, Mixture) or expression.rowwise):
        raise UnsupportedPattern(f"normed or turned at {name!r}", "own_keys")
    if isinstance(expression, Mixture):
        return _mixed(table, name, operation, function)
    if expression.reduced:
        raise UnsupportedPattern(f"{name!r} is one number for each row of {operation.name!r}")
    if not expression.rowwise:
        return _elementwise(table, name, expression, function)
    if isinstance(operation, Scores):
        return _softmax(table, name, expression, function)
    if isinstance(operation, Weights):
        raise UnsupportedPattern(f"at {name!r}", "second_softmax")
    return norm_view(table, name, expression, function)


def _mixed(table: ValueTable, name: str, operation: Operation, function: Function) -> View:
    try:
        index, factor, form = row_map(function, operation.shape, table.S)
    except UnsupportedPattern as reason:
        turned = isinstance(operation, Linear | TracedNorm)
        raise UnsupportedPattern(f"{reason} ({name!r})", "rope" if turned else None) from None
    if form is None:
        return View(operation, index, factor)
    return View(RowMap(operation.shape, name, whole(operation), form), index, factor)


def _elementwise(table: ValueTable, name: str, expression: Expression, function: Function) -> View:
    """A scale, or an activation and its scale."""
    operation = expression.operation
    values = probe(operation.shape)
    observed, inputs = function(values), values.reshape(-1)[expression.index]
    factor = scale_of(observed, inputs)
    if factor is not None:
        if isinstance(operation, Linear | TracedNorm):
            table.uniform_gains[id(operation), factor] = _gain_operand(table, name, expression, function)
        return View(operation, expression.index, factor)
    if isinstance(operation, Appended):
        raise UnsupportedPattern(f"through a function at {name!r}", "own_keys")
    if isinstance(operation, Scores):
        raise UnsupportedPattern(f"each is a function of its own score alone, at {name!r}", "no_softmax")
    if isinstance(operation, Weights):
        raise UnsupportedPattern("attention's weights go through something that is no scale and no mask")
    if (gains := _gains(expression, observed, inputs)) is not None:
        source = _gain_operand(table, name, expression, function)
        gained = RowMap(operation.shape, name, whole(operation), Gain(gains, source))
        return View(table.intern((id(operation), gains.astype(np.float32).tobytes()), gained), expression.index)
    if _is_shift(observed - inputs, function(2 * values) - 2 * inputs):
        raise _shifted(_added_at(table, name, operation), expression, observed - inputs)
    if isinstance(operation, Linear | TracedNorm) and _is_multiple(observed, function(-2 * values)):
        raise UnsupportedPattern(f"each feature is multiplied by a number of its position, at {name!r}", "rope")
    if isinstance(operation, Sum) and all(isinstance(each, Linear) for each in operation.sides):
        raise UnsupportedPattern(f"a function of a sum of two maps at {name!r}", "gated_skip")
    if isinstance(operation, TracedInput | Sum):
        raise UnsupportedPattern(f"a function of each element at {name!r}", "no_norm")
    try:
        found = activation_of(observed, inputs, name)
    except UnsupportedPattern as reason:
        learned = any(node.op_type == "PRelu" for node in table.nodes_between(name, operation))
        raise UnsupportedPattern(str(reason), "activation" if learned else reason.feature) from None
    activation = Activation(operation.shape, name, whole(operation), found.function, found.error, found.formula)
    return View(table.intern((id(operation), found.function), activation), expression.index, found.factor)


def _is_shift(added: Elementwise, beside_twice: Elementwise) -> bool:
    """Whether the same is added to an input and to twice that."""
    with np.errstate(all="ignore"):
        return bool(np.abs(added - beside_twice).max() <= CLOSE * np.abs(added).max())


def _is_multiple(found: Elementwise, of_minus_twice: Elementwise) -> bool:
    """Whether inputs are multiplied by numbers that do not depend on them."""
    with np.errstate(all="ignore"):
        return bool(np.abs(found + of_minus_twice / 2).max() <= CLOSE * np.abs(found).max())


def _added_at(table: ValueTable, name: str, operation: Operation) -> str:
    """The last value on the way to `name` to which what does not depend on x was added; that itself where none was."""
    for node in table.nodes_between(name, operation):
        if node.op_type in ("Add", "Sub", "Sum") and any(each not in table.values for each in node.input):
            return str(node.output[0])
    return name


def _shifted(name: str, expression: Expression, added: Elementwise) -> UnsupportedPattern:
    """What numbers show that are added: another bias of a map that has one, or positions."""
    operation, F = expression.operation, expression.operation.shape[-1]
    features, first, at = np.unique(expression.index % F, return_index=True, return_inverse=True)
    each = added.reshape(-1)[first]
    bias = operation.bias.value if isinstance(operation, Linear) and operation.bias is not None else None
    if bias is None or bias.size != F or np.abs(each[at.reshape(-1)] - added.reshape(-1)).max() > CLOSE:
        return UnsupportedPattern(f"at {name!r}", "added")
    again = np.abs(each - bias.reshape(-1)[features]).max() <= CLOSE * np.abs(bias).max()
    return UnsupportedPattern(f"{'the same bias again' if again else 'another'} at {name!r}", "second_bias")


def _gains(expression: Expression, observed: Elementwise, inputs: Elementwise) -> Array | None:
    """[D], the number that multiplies each feature, wherever it stands; None where that is not what is done."""
    features, seen = np.unique(expression.index % expression.operation.shape[-1], return_inverse=True)
    seen, observed, inputs = seen.reshape(-1), observed.reshape(-1), inputs.reshape(-1)
    largest = np.lexsort((np.abs(inputs), seen))  # of each feature the largest input is its last one
    last = largest[np.searchsorted(seen[largest], np.arange(len(features)), side="right") - 1]
    with np.errstate(all="ignore"):
        factors = observed[last] / inputs[last]
        error = np.abs(observed - factors[seen] * inputs).max()
    return factors if error <= CLOSE * np.abs(factors).max() * np.abs(inputs).max() else None


def _gain_operand(table: ValueTable, name: str, expression: Expression, function: Function) -> WeightSource | None:
    """The vector [F] of the file that multiplies the features; None where no one vector does."""
    operation = expression.operation
    F = operation.shape[-1]
    values = probe(operation.shape)
    inputs, drawn = values.reshape(-1)[expression.index], np.random.default_rng(5).uniform(0.5, 1.5, F)
    due = inputs * drawn[expression.index % F]
    for operand in norm_operands(table, name, operation, F):
        if operand.name and operand.source.value.size == F:
            observed = function(values, {operand.name: np.resize(drawn, operand.shape)})
            if np.abs(observed - due).max() <= CLOSE * np.abs(due).max():
                return operand.source
    return None


def _softmax(table: ValueTable, name: str, expression: Expression, function: Function) -> View:
    scores, index = expression.operation, expression.index
    assert isinstance(scores, Scores)
    try:
        form = softmax_of(function, expression)
    except UnsupportedPattern as reason:
        capped = any(node.op_type == "Tanh" for node in table.nodes_between(name, scores))
        if reason.feature == "head_scales":
            raise UnsupportedPattern(f"at {_scaled_at(table, name, scores)!r}", reason.feature) from None
        if reason.feature == "own_mask":
            said = f"{reason}, at {_masked_at(table, name, scores)!r}"
            raise UnsupportedPattern(said, "softcap" if capped else reason.feature) from None
        if reason.feature == "weights_scaled":
            reason = UnsupportedPattern(f"{reason}, at {_scaled_behind(table, name, scores)!r}", reason.feature)
        raise UnsupportedPattern(str(reason), "softcap" if capped else reason.feature) from None
    constant = of_positions(scores, form.constant, expression.axis)
    added = _added(table, name, scores) if constant is not None and biases_positions(constant) else ()
    first = expression.axis == -1
    scaled = _scaled_at(table, name, scores)
    B, H, Q, K = scores.shape
    shape = scores.shape if first else (B, H, K, Q)
    weights = Weights(shape, name, scores, form.scale, first, constant, scaled, form.cap, added)
    if expression.axis == -2:
        index = index // (Q * K) * (Q * K) + index % K * Q + index // K % Q
    return View(table.intern((id(scores), form.scale, expression.axis), weights), index)


def _added(table: ValueTable, name: str, scores: Operation) -> tuple[str, ...]:
    """The values of numbers that are added on the way from the scores, or subtracted."""
    sums = (node for node in table.nodes_between(name, scores) if node.op_type in ("Add", "Sub"))
    return tuple(each for node in sums for each in node.input if each not in table.values)


def _masked_at(table: ValueTable, name: str, scores: Scores) -> str:
    """The value that numbers of each pair of positions make of the scores, the last on the way to the softmax `name`;
    that itself where none do."""
    for node in table.nodes_between(name, scores):
        others = (each for each in node.input if each and each not in table.values)
        if any(table.number(each).size > 1 and table.number(each).shape[-1:] == scores.shape[-1:] for each in others):
            return str(node.output[0])
    return name


def _scaled_at(table: ValueTable, name: str, scores: Scores) -> str:
    """The value that a number, or one of each head, multiplies on the way to the softmax `name`, behind the product or
    before it; the scores where none does."""
    behind: list[str]
    before: str
    sizes = {1, scores.shape[1]}
    if behind := [node.output[0] for node in table.nodes_between(name, scores) if _scales(table, node, sizes)]:
        return behind[-1]
    for before in table.graph.producers[scores.name].input:
        while (node := table.graph.producers.get(before)) is not None and before in table.values:
            if _scales(table, node, {1}):
                return before
            if node.op_type not in MOVES | IDENTITIES:
                break
            before = node.input[0]
    return scores.name


def _scaled_behind(table: ValueTable, name: str, scores: Scores) -> str:
    """The last value on the way to the weights `name` that numbers of each head multiply, or one; that itself where
    none does, as where numbers are masks."""
    sizes = {1, scores.shape[1]}
    scaled = (node.output[0] for node in table.nodes_between(name, scores) if _scales(table, node, sizes))
    return str(next(scaled, name))


def _scales(table: ValueTable, node: onnx.NodeProto, sizes: Container[int]) -> bool:
    """Whether it multiplies what depends on x by one number, or by so many."""
    constants = [each for each in node.input if each not in table.values]
    return node.op_type in ("Mul", "Div") and len(constants) == 1 and table.number(constants[0]).size in sizes


def scale_of(observed: Elementwise, inputs: Elementwise) -> float | None:
    """The factor, where the function is a multiplication by one."""
    with np.errstate(all="ignore"):
        factor = float(np.vdot(observed, inputs) / np.vdot(inputs, inputs))
        tolerance = CLOSE * abs(factor) * np.abs(inputs).max()
        close = np.isfinite(observed).all() and np.abs(observed - factor * inputs).max() <= tolerance
    if not close or not factor:
        return None
    return 1.0 if abs(factor - 1) < CLOSE else factor


def evaluate(
    table: ValueTable, name: str, operation: Operation, values: Array, constants: Mapping[str, Array] = {}
) -> Array:
    """The value of `name` where the operation has these values [*shape], in float64 as far as the file lets it.

    `constants` replace the file's own.
    """

    @cache
    def number(name: str) -> Array:
        if name in constants:
            return constants[name]
        value = table.value(name)
        if isinstance(value, Unknown):
            raise UnsupportedPattern(value.reason, value.feature)
        if isinstance(value, View) and value.operation is operation:
            return values.reshape(-1)[value.index] * value.factor
        if isinstance(value, Constant):
            narrow = value.value.dtype.name in ("float32", "float16", "bfloat16")
            return value.value.astype(np.float64) if narrow else value.value
        node = table.graph.producers[name]
        if node.op_type in ("Cast", "Dropout", "CastLike") and name == node.output[0]:
            result = number(node.input[0])
            return cast(table, node, result) if node.op_type == "Cast" else result
        inputs = [number(each) if each else None for each in node.input]
        return table.nodes.run(node, inputs)[list(node.output).index(name)]

    return number(name)


def cast(table: ValueTable, node: onnx.NodeProto, value: Elementwise) -> Elementwise:
    """The cast, except that one between floating-point formats stays in float64."""
    if attributes_of(node)["to"] not in FLOAT_TYPES:
        return table.nodes.run(node, [value])[0]
    return value if value.dtype.kind == "f" else value.astype(np.float64)
