"""Traces x through the graph, node by node, and says what each value is: a view of an operation.

Nodes that rearrange run on the numbers of elements. Elementwise nodes and reductions build up a function of one
operation, which is recognised by its values when another node needs it (`recognition`).
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.execution import error_text
from encoder_conformance.readers.onnx_file.graph.lowering import takes_one_position
from encoder_conformance.readers.onnx_file.graph.nodes import STANDARD, attributes_of, node_label
from encoder_conformance.readers.onnx_file.graph.operators import (
    CURVED,
    ELEMENTWISE,
    FLOAT_TYPES,
    IDENTITIES,
    MOVES,
    PRODUCTS,
    REDUCTIONS,
    ROWWISE,
)
from encoder_conformance.readers.onnx_file.tracing.appended import appended
from encoder_conformance.readers.onnx_file.tracing.attention import attention_operator, attention_product
from encoder_conformance.readers.onnx_file.tracing.biases import is_of_features, takes_bias, with_bias
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Activation,
    Constant,
    Context,
    Expression,
    Gain,
    Gate,
    Linear,
    Mixture,
    Operation,
    RowMap,
    Scores,
    Sum,
    TracedNorm,
    Unknown,
    UnsupportedPattern,
    Value,
    View,
    Weighed,
    Weights,
    rows_of,
)
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.readers.onnx_file.tracing.heads_apart import put_together, summed
from encoder_conformance.readers.onnx_file.tracing.limits import refuse_limits
from encoder_conformance.readers.onnx_file.tracing.matrix_products import is_part_of_a_rotation, linear_map, product_of
from encoder_conformance.readers.onnx_file.tracing.operators import OPERATORS
from encoder_conformance.readers.onnx_file.tracing.recognition import (
    CLOSE,
    settle_activation,
    settle_norm,
    view_if_any,
    view_of,
)
from encoder_conformance.readers.onnx_file.tracing.rows import axes_of, row_axis
from encoder_conformance.readers.onnx_file.tracing.value_table import ValueTable, data_inputs
from encoder_conformance.readers.onnx_file.tracing.weighted_means import feature_of_difference
from encoder_conformance.spec.axes import Array

_NOT_TURNED_BACK = "heads are put together without a transpose: a row of their product is of several positions"


class SymbolicTrace(ValueTable):
    """A value table that fills itself, node by node."""

    def run(self) -> None:
        for node in self.graph.nodes:
            if any(output in self.dependent for output in node.output):
                self._step(node)

    def _step(self, node: onnx.NodeProto) -> None:
        """Enter the node's outputs into the table."""
        inputs = {name: self.value(name) for name in node.input if name}
        unknown = next((value for value in inputs.values() if isinstance(value, Unknown)), None)
        values: list[Value] = []
        if unknown is None:
            unknown = Unknown("is no output that an encoder layer needs", node_label(node))
            try:
                values = self._outputs(node, inputs)
            except UnsupportedPattern as reason:
                unknown = Unknown(str(reason), node_label(self._arranging(node, reason)), reason.feature)
            except RecursionError:
                unknown = Unknown("more nodes in a row lead to it than are followed", node_label(node))
            except Exception as reason:  # a node may fail in any way on these inputs
                unknown = Unknown(f"cannot be followed: {error_text(reason)}", node_label(node))
        outputs = [name for name in node.output if name]
        self.values.update(dict.fromkeys(outputs, unknown))
        self.values.update(zip(outputs, values, strict=False))

    def _arranging(self, node: onnx.NodeProto, reason: UnsupportedPattern) -> onnx.NodeProto:
        """The reshape that gives an input of a node its rows; the node where there is none. An exporter may add one of
        its own to a map: of heads that are put together it comes behind theirs, and of such that are cut before."""
        reshapes = list[onnx.NodeProto]()
        maker = None if reason.arranged is None else self.graph.producers.get(node.input[reason.arranged])
        while maker is not None and maker.op_type in MOVES | IDENTITIES:
            reshapes += [maker] if maker.op_type == "Reshape" else []
            maker = self.graph.producers.get(maker.input[0])
        return reshapes[-1 if str(reason) == _NOT_TURNED_BACK else 0] if reshapes else node

    def _outputs(self, node: onnx.NodeProto, inputs: Mapping[str, Value]) -> list[Value]:
        op = node.op_type
        if op in CURVED or (op == "Mul" and len({*node.input}) == 1):
            inputs = {name: self._settled(name) for name in inputs}
        mixed = {id(value.operation): value for value in inputs.values() if isinstance(value, Mixture)}
        own = {id(value.operation) for value in inputs.values() if isinstance(value, View | Expression)}
        if mixed and own and not own <= mixed.keys():
            inputs = {name: self._traced_again(name) for name in inputs}
            mixed = {id(value.operation): value for value in inputs.values() if isinstance(value, Mixture)}
        if len(mixed) == 1 and own <= mixed.keys() and op in MOVES | IDENTITIES | ELEMENTWISE:
            return [*mixed.values()] * len(node.output)
        if op in MOVES:
            return self._rearranged(node)
        if op in IDENTITIES:
            return [self._identity(node, inputs[node.input[0]])]
        if op in PRODUCTS:
            return [self._product(node)]
        if op in ELEMENTWISE:
            return [self._elementwise(node, inputs)]
        if op in REDUCTIONS or op in ROWWISE:
            return [self._rowwise(node)]
        if op == "Pad" and len(node.input) > 1 and not self.number(node.input[1]).any():
            return [inputs[node.input[0]]]
        if op == "Attention" and node.domain in STANDARD:
            return attention_operator(self, node)
        if op == "RotaryEmbedding" and node.domain in STANDARD:
            settle_norm(self, node.input[0])
            return [Mixture(self.value(node.input[0]).operation)]  # type: ignore[union-attr]
        shown = OPERATORS.get(op)
        if shown == "overwritten" and isinstance(_operation(inputs[node.input[0]]), Scores | Weights):
            shown = "keys_overwritten"
        if op == "Pad" and isinstance(_operation(inputs[node.input[0]]), Scores):
            shown = "no_softmax"  # a column more in the sum
        shown = "grouped_map" if takes_one_position(node) else shown
        raise UnsupportedPattern("" if shown else f"{op} has no place in an encoder layer of the specification", shown)

    def _settled(self, name: str) -> Value:
        """The value, as an operation of its own where elements are mixed by one that is known, as by a rotation."""
        value = self.value(name)
        return view_if_any(self, name) if isinstance(value, Mixture) else value

    def _traced_again(self, name: str) -> Value:
        """The value; of what became an operation of its own since it was traced, where it was a mixture before."""
        value, node = self.value(name), self.graph.producers.get(name)
        made_of = [self.values[each] for each in node.input if each in self.values] if node is not None else []
        if isinstance(value, Mixture) and any(isinstance(_operation(each), RowMap) for each in made_of):
            assert node is not None
            self._step(node)
        return self.value(name)

    def _rearranged(self, node: onnx.NodeProto) -> list[Value]:
        data = data_inputs(node)
        several = len(data) > 1
        if node.op_type in ("Split", "Slice", "Gather"):
            settle_norm(self, data[0])
        values = [view_if_any(self, name) if several and name in self.values else self.value(name) for name in data]
        others = [self.number(name) if name else None for name in node.input[len(data) :]]
        if any(name in self.values for name in node.input[len(data) :]):
            raise UnsupportedPattern(f"{node.op_type} by what x holds")
        dependent = [value for value in values if isinstance(value, View | Expression)]
        if len(dependent) < len(values):
            return [appended(self, node, dict(zip(data, values, strict=True)))]
        first = dependent[0]
        if any(value.operation is not first.operation for value in dependent):
            dependent = [*put_together([view_of(self, name) for name in data])]
            first = dependent[0]
        apart = several and len({value.factor if isinstance(value, View) else id(value) for value in dependent}) > 1
        if apart and not (isinstance(first.operation, Scores) and all(map(_is_of_each, dependent))):
            return [Mixture(first.operation)]
        indices = self.nodes.run(node, [*(value.index for value in dependent), *others])
        if apart:  # the scores of each head, to which other numbers were added than to the next one's
            return [Expression(first.operation, index, False, False) for index in indices]
        return [replace(first, index=index) for index in indices]

    def _identity(self, node: onnx.NodeProto, value: Value) -> Value:
        if node.op_type == "Cast" and attributes_of(node)["to"] not in FLOAT_TYPES:
            return self._expression(node, [value])  # a comparison, or an integer on its way
        return value

    def _product(self, node: onnx.NodeProto) -> Value:
        one, two = node.input[:2]
        if one in self.values and two in self.values:
            return attention_product(self, node, view_of(self, one), view_of(self, two))
        data, constant = (one, two) if one in self.values else (two, one)
        view, source = view_of(self, data), self.source(constant)
        operands = (view.index, np.empty(source.value.shape, np.bool_))
        ordered = operands if data == one else operands[::-1]
        product, a, b = product_of(node, *ordered)
        product, index, constant_operand = (product, a, b) if data == one else (product.swapped(), b, a)
        source = source.reshape(*constant_operand.shape)
        if isinstance(view.operation, Scores | Weights):
            raise UnsupportedPattern(f"at {node.output[0]!r}", "talking_heads")
        if is_part_of_a_rotation(product, source.value):
            return Mixture(view.operation)
        factor = view.factor * float(attributes_of(node).get("alpha", 1.0))
        if abs(factor - 1) > CLOSE:
            raise UnsupportedPattern(_of_factor(view.operation, factor))
        activated, F = isinstance(view.operation, Activation), view.operation.shape[-1]
        of_heads = isinstance(view.operation, Context)
        mixing = _NOT_TURNED_BACK if of_heads else "a product that sums over positions"
        try:
            out, weight, heads, width = linear_map(product, index, source, F, mixing=mixing, of_a_part=activated)
        except UnsupportedPattern as reason:
            reason.arranged = list(node.input).index(data) if of_heads and str(reason) == mixing else None
            raise
        taken = np.unique(view.index % F) if activated and len(weight.value) < F else None
        operation = Linear((view.operation.shape[0], width), node.output[0], view, weight, None, heads, taken)
        result = View(operation, out)
        if node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]:
            if (beta := attributes_of(node).get("beta", 1.0)) != 1.0:
                raise UnsupportedPattern(f"Gemm with beta = {beta}")
            return with_bias(node, result, self.source(node.input[2]))
        return result

    def _elementwise(self, node: onnx.NodeProto, inputs: Mapping[str, Value]) -> Value:
        refuse_limits(self, node)
        values = [inputs[name] for name in node.input if name]
        operations = {id(value.operation) for value in values if not isinstance(value, Constant | Unknown)}
        if len(operations) > 1:
            return self._sum(node)
        if any(isinstance(value, Constant) and _is_by_position(value.value, values) for value in values):
            for name in inputs:
                settle_norm(self, name)
            values = [self.value(name) for name in node.input if name]
        if node.op_type == "Add":
            for name, other in (node.input, node.input[::-1]):
                value = inputs[name]
                if isinstance(value, View) and other not in self.values and takes_bias(self, value, other):
                    return with_bias(node, value, self.source(other))
        return self._expression(node, values)

    def _expression(self, node: onnx.NodeProto, values: list[Value]) -> Expression | Mixture | View:
        dependent = [value for value in values if isinstance(value, View | Expression)]
        operation = dependent[0].operation
        shape = np.broadcast_shapes(*(v.value.shape if isinstance(v, Constant) else v.index.shape for v in values))  # type: ignore[union-attr]
        expressions = [value for value in dependent if isinstance(value, Expression)]
        axes = {(value.axis, value.width) for value in expressions if value.rowwise}
        if len(axes) > 1:
            raise UnsupportedPattern("rows in two directions")
        axis, width = axes.pop() if axes else (-1, 0)
        whole = [np.broadcast_to(v.index, shape) for v in dependent if not (isinstance(v, Expression) and v.reduced)]
        rows = [np.broadcast_to(v.index, shape) for v in dependent if isinstance(v, Expression) and v.reduced]
        if any(not np.array_equal(index, whole[0]) for index in whole[1:]):
            if node.op_type in ("Add", "Sub") and len(operation.shape) == 2:
                return Mixture(operation)
            message = f"{node.op_type} of different elements of {operation.name!r} with each other"
            if node.op_type == "Mul" and isinstance(operation, Linear):
                one, two = (view_of(self, name) for name in node.input)
                return self._gate(node, one, two, message)
            raise UnsupportedPattern(message)
        own_rows = rows_of(operation, whole[0], axis, width) if whole else rows[0]
        if any(not np.array_equal(index, own_rows) for index in rows):
            raise UnsupportedPattern(f"{node.op_type} of an element of {operation.name!r} with another row's")
        return Expression(
            operation, whole[0] if whole else rows[0], any(v.rowwise for v in expressions), not whole, axis, width
        )

    def _gate(self, node: onnx.NodeProto, one: View, two: View, message: str) -> View:
        """The product of two operations, or of two parts of one: each feature of a row by one of the same row's."""
        F, G = one.operation.shape[-1], two.operation.shape[-1]
        rows, features = one.index // F, one.index % F
        present, first = np.unique(features, return_index=True)
        of_other = (two.index % G).reshape(-1)[first] if one.index.shape == two.index.shape else present[:0]
        at = np.searchsorted(present, features)
        alike = of_other.size and np.array_equal(of_other[at], two.index % G) and np.array_equal(rows, two.index // G)
        if not alike or one.factor * two.factor != 1:
            raise UnsupportedPattern(message, "gated" if one.index.shape == two.index.shape else "one_query")
        shape = one.operation.shape[0], len(present)
        return View(Gate(shape, node.output[0], one, two, present, of_other), rows * len(present) + at)

    def _sum(self, node: onnx.NodeProto) -> View:
        names = [name for name in node.input if name]
        if node.op_type == "Sub":
            raise UnsupportedPattern(f"at {node.output[0]!r}", feature_of_difference(self.graph, node, self.dependent))
        if node.op_type not in ("Add", "Sum", "Mul") or len(names) != 2:
            raise UnsupportedPattern(f"{node.op_type} of two different things that depend on x")
        if node.op_type == "Mul" and any(_is_attention(self.values[name]) for name in names):
            raise UnsupportedPattern(f"at {node.output[0]!r}", "gated_attention")
        one, two = (view_of(self, name) for name in names)
        if one.operation is two.operation:
            return self._expression(node, [one, two])  # type: ignore[return-value]
        if isinstance(one.operation, Scores | Weights) or isinstance(two.operation, Scores | Weights):
            what = "a product by element" if node.op_type == "Mul" else "a sum"
            raise UnsupportedPattern(f"{what} of scores or weights of attention with something else that depends on x")
        if node.op_type == "Mul":
            return self._gate(node, one, two, "Mul of two different things that depend on x")
        if (of_heads := summed(one, two, node.output[0])) is not None:
            return of_heads
        one, two = self._weighed(one, names[0]), self._weighed(two, names[1])
        if one.operation.shape != two.operation.shape or not np.array_equal(one.index, two.index):
            merged = any(isinstance(each.operation, Context) for each in (one, two))
            feature: Feature | None = "heads_merged" if merged and one.index.shape == two.index.shape else None
            raise UnsupportedPattern("a sum of elements of different positions or features", feature)
        return View(Sum(one.operation.shape, node.output[0], one, two), one.index)

    def _weighed(self, side: View, name: str) -> View:
        """A side of a residual sum, of this name: what is multiplied by a number, or by one of each feature, is an
        operation."""
        gain = self.uniform_gains.get((id(side.operation), side.factor))
        if side.factor == 1 and gain is None:
            return side
        operation, N, F = side.operation, *side.operation.shape
        whole = View(operation, np.arange(N * F).reshape(N, F))
        if gain is not None:
            form = Gain(np.full(F, side.factor), gain)
            return View(RowMap(operation.shape, operation.name, whole, form), side.index)
        return View(Weighed(operation.shape, name, whole, side.factor), side.index)

    def _rowwise(self, node: onnx.NodeProto) -> Expression:
        """A reduction, or a function of whole rows."""
        name = node.input[0]
        value = self.value(name)
        if isinstance(value, Expression) and value.rowwise and not value.reduced:
            value = view_if_any(self, name)  # a norm of a norm: the first is an operation of its own
        elif isinstance(value, Expression) and not value.rowwise:
            settle_activation(self, name)  # what is normed may be activated features
            value = self.value(name)
        if isinstance(value, Mixture):
            value = view_of(self, name)
        if any(other in self.values for other in node.input[1:]):
            raise UnsupportedPattern(f"{node.op_type} with parameters that depend on x")
        assert isinstance(value, View | Expression)
        if isinstance(value, Expression) and value.reduced:
            raise UnsupportedPattern(f"{node.op_type} of what is one number a row already")
        axes = axes_of(node, value.index.ndim, self.graph.opsets.get("", 1), self.number)
        axis, width, rows = row_axis(value.operation, value.index, axes)
        if isinstance(value, Expression) and value.rowwise and (value.axis, value.width) != (axis, width):
            raise UnsupportedPattern("rows in two directions")
        if node.op_type in ROWWISE:
            return Expression(value.operation, value.index, True, False, axis, width)
        if not attributes_of(node).get("keepdims", 1):
            rows = rows.squeeze(axes)
        return Expression(value.operation, rows, True, True, axis, width)


def _of_factor(norm: Operation, factor: float) -> str:
    """What a factor is that multiplies the features which a map takes."""
    if isinstance(norm, TracedNorm) and abs(factor * norm.features**0.5 - 1) <= CLOSE:
        return f"{norm.name!r} divides by the length of a row (an L2 norm), not by a root mean square or a deviation"
    return f"features multiplied by {factor:.6g} in a linear map"


def _is_attention(value: Value) -> bool:
    """Whether it is what attention gives, before or behind its last map."""
    operation = _operation(value)
    return isinstance(operation.of.operation if isinstance(operation, Linear) else operation, Context)


def _is_of_each(value: View | Expression) -> bool:
    """Whether it is the elements of an operation, each by itself or a function of itself alone."""
    return isinstance(value, View) or not value.rowwise


def _operation(value: Value) -> Operation | None:
    """The operation whose elements it is, or is computed of."""
    return value.operation if isinstance(value, View | Expression | Mixture) else None


def _is_by_position(constant: Array, beside: list[Value]) -> bool:
    """Whether it is other numbers for one position than for the next, and not one for each feature."""
    whole = [each for each in beside if isinstance(each, View) or (isinstance(each, Expression) and not each.reduced)]
    return _differs_by_row(constant) and not any(is_of_features(constant, each) for each in whole)


def _differs_by_row(constant: Array) -> bool:
    """Whether its last axis holds other numbers at one place than at the next."""
    rows = constant.reshape(-1, constant.shape[-1]) if constant.ndim > 1 and constant.size else constant[None]
    return bool((rows != rows[:1]).any())
