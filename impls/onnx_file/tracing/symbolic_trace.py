"""Follows x through the graph, node by node, and says of each value what it is: a view of something named.

Nodes that rearrange are carried out on the elements' numbers. Elementwise nodes and reductions build up a function of
one root, which is given a name, by what it does to numbers, when something needs it to have one (`closing`).
"""

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from encoder_conformance.impls.onnx_file.graph.execution import said
from encoder_conformance.impls.onnx_file.graph.operators import (
    ELEMENTWISE,
    IDENTITIES,
    MOVES,
    PRODUCTS,
    REDUCTIONS,
    ROWWISE,
)
from encoder_conformance.impls.onnx_file.tracing import recognition as closing
from encoder_conformance.impls.onnx_file.tracing.attention import attention, of_two
from encoder_conformance.impls.onnx_file.tracing.expressions import (
    Array,
    Fixed,
    Linear,
    Local,
    NotUnderstood,
    Root,
    Scores,
    Source,
    Sum,
    Unknown,
    Value,
    View,
    Weights,
    rows_of,
)
from encoder_conformance.impls.onnx_file.tracing.matrix_products import (
    FLOATS,
    attributes,
    linear_map,
    named,
    product_of,
)
from encoder_conformance.impls.onnx_file.tracing.rows import axes_of, row_axis
from encoder_conformance.impls.onnx_file.tracing.value_table import Known, data_of


class Flow(Known):
    """`values` gets what each value that depends on x is, node by node."""

    def follow(self) -> None:
        for node in self.graph.nodes:
            if any(output in self.moving for output in node.output):
                self._step(node)

    def _step(self, node: onnx.NodeProto) -> None:
        """Say what the node's outputs are, by what its inputs are."""
        given = {name: self.value(name) for name in node.input if name}
        lost = next((value for value in given.values() if isinstance(value, Unknown)), None)
        outputs = [name for name in node.output if name]
        if lost is not None:
            self.values.update(dict.fromkeys(outputs, lost))
            return
        try:
            for name, value in zip(outputs, self._answers(node, given), strict=False):
                self.values[name] = value
        except NotUnderstood as reason:
            self.values.update(dict.fromkeys(outputs, Unknown(str(reason), named(node))))
        except RecursionError:
            lost = Unknown("more nodes in a row lead to it than are followed", named(node))
            self.values.update(dict.fromkeys(outputs, lost))
        except Exception as reason:  # what a stranger's node makes of what it is given is anybody's guess
            self.values.update(dict.fromkeys(outputs, Unknown(f"cannot be followed: {said(reason)}", named(node))))
        for name in outputs:
            self.values.setdefault(name, Unknown("is no output that an encoder layer needs", named(node)))

    def _answers(self, node: onnx.NodeProto, given: Mapping[str, Value]) -> list[Value]:
        op = node.op_type
        if op in MOVES:
            return self._moved(node)
        if op in IDENTITIES:
            return [self._kept_as_is(node, given[node.input[0]])]
        if op in PRODUCTS:
            return [self._product(node)]
        if op in ELEMENTWISE:
            return [self._elementwise(node, given)]
        if op in REDUCTIONS or op in ROWWISE:
            return [self._of_rows(node)]
        if op == "Attention" and node.domain in ("", "ai.onnx"):
            return attention(self, node)
        raise NotUnderstood(f"{op} has no place in an encoder layer as the specification knows it")

    def _moved(self, node: onnx.NodeProto) -> list[Value]:
        data = data_of(node)
        values = [self.value(name) for name in data]
        others = [self.number(name) if name else None for name in node.input[len(data) :]]
        if any(name in self.values for name in node.input[len(data) :]):
            raise NotUnderstood(f"{node.op_type} by what x holds")
        if len(values) > 1:
            values = [self.closed(name) if name in self.values else self.value(name) for name in data]
        first = values[0]
        if any(isinstance(value, Fixed) for value in values):
            raise NotUnderstood(f"{node.op_type} of x and something that does not depend on it")
        assert isinstance(first, View | Local)
        if any(v.root is not first.root or getattr(v, "factor", 1) != getattr(first, "factor", 1) for v in values):  # type: ignore[union-attr]
            raise NotUnderstood("Concat of different things")
        indices = self.nodes.run(node, [*(value.index for value in values), *others])  # type: ignore[union-attr]
        if isinstance(first, View):
            return [View(first.root, index, first.factor) for index in indices]
        return [Local(first.root, index, first.rowwise, first.reduced, first.axis) for index in indices]

    def _kept_as_is(self, node: onnx.NodeProto, value: Value) -> Value:
        if node.op_type == "Dropout" and drops(node, self.number):
            self.dropping.append(named(node))
        if node.op_type == "Cast" and attributes(node)["to"] not in FLOATS:
            return self._local(node, [value])  # a comparison, or an integer on its way
        return value

    def _product(self, node: onnx.NodeProto) -> Value:
        one, two = node.input[:2]
        if one in self.values and two in self.values:
            return of_two(self, node, self.closed(one), self.closed(two))
        data, constant = (one, two) if one in self.values else (two, one)
        view, source = self.closed(data), self.source(constant)
        operands = (view.index, np.empty(source.value.shape, np.bool_))
        ordered = operands if data == one else operands[::-1]
        product, a, b = product_of(node, *ordered)
        product, index, held = (product, a, b) if data == one else (product.swapped(), b, a)
        source = Source(
            source.value.reshape(held.shape), None if source.elements is None else source.elements.reshape(held.shape)
        )
        if isinstance(view.root, Scores | Weights):
            raise NotUnderstood("scores or weights of attention times a constant matrix")
        factor = view.factor * float(attributes(node).get("alpha", 1.0))  # type: ignore[arg-type]
        if abs(factor - 1) > closing.CLOSE:
            raise NotUnderstood(f"features multiplied by {factor:.6g} in a linear map")
        out, weight, heads, width = linear_map(product, index, source, view.root.shape[-1])
        root = self.add(Linear((view.root.shape[0], width), node.output[0], view, weight, None, heads))
        result = View(root, out)
        if node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]:
            said = attributes(node)
            if said.get("beta", 1.0) != 1.0:
                raise NotUnderstood(f"Gemm with beta = {said['beta']}")
            return self._biased(node, result, self.source(node.input[2]))
        return result

    def _elementwise(self, node: onnx.NodeProto, given: Mapping[str, Value]) -> Value:
        values = [given[name] for name in node.input if name]
        roots = {id(value.root) for value in values if not isinstance(value, Fixed | Unknown)}
        if len(roots) > 1:
            return self._sum(node)
        if node.op_type == "Add":
            for name, other in (node.input, node.input[::-1]):
                value = given[name]
                if isinstance(value, View) and other not in self.values and self._takes_bias(value, other):
                    return self._biased(node, value, self.source(other))
        return self._local(node, values)

    def _local(self, node: onnx.NodeProto, values: list[Value]) -> Local:
        moving = [value for value in values if isinstance(value, View | Local)]
        root = moving[0].root
        shape = np.broadcast_shapes(*(v.value.shape if isinstance(v, Fixed) else v.index.shape for v in values))  # type: ignore[union-attr]
        locals_ = [value for value in moving if isinstance(value, Local)]
        axes = {value.axis for value in locals_ if value.rowwise}
        if len(axes) > 1:
            raise NotUnderstood("rows in two directions")
        axis = axes.pop() if axes else -1
        whole = [np.broadcast_to(v.index, shape) for v in moving if not (isinstance(v, Local) and v.reduced)]
        rows = [np.broadcast_to(v.index, shape) for v in moving if isinstance(v, Local) and v.reduced]
        if any(not np.array_equal(index, whole[0]) for index in whole[1:]):
            raise NotUnderstood(f"{node.op_type} of different elements of {root.name!r} with each other")
        due = rows_of(root, whole[0], axis) if whole else rows[0]
        if any(not np.array_equal(index, due) for index in rows):
            raise NotUnderstood(f"{node.op_type} of an element of {root.name!r} with another row's")
        return Local(root, whole[0] if whole else rows[0], any(v.rowwise for v in locals_), not whole, axis)

    def _takes_bias(self, view: View, other: str) -> bool:
        """Whether adding this constant to the view gives a linear map its bias."""
        linear = view.root
        if isinstance(linear, Sum):
            linear = next((v.root for v in (linear.one, linear.other) if _unbiased(v.root)), linear)
        value = self.number(other)
        if not _unbiased(linear) or value.size < 2 or view.factor != 1:
            return (
                value.size == 1 and view.root.shape[-1] == 1 and _unbiased(linear) and self._elements(other) is not None
            )
        return value.shape[-1] == view.index.shape[-1] and not self._by_mask(other)

    def _by_mask(self, name: str) -> bool:
        """Whether a value hangs on an input and not on constants alone."""
        if name in self.graph.constants:
            return False
        node = self.graph.makers.get(name)
        return node is None or any(self._by_mask(given) for given in node.input if given)

    def _biased(self, node: onnx.NodeProto, view: View, source: Source) -> View:
        """The view's linear map with a bias, of the features that the view shows."""
        root, F = view.root, view.root.shape[-1]
        shape = np.broadcast_shapes(view.index.shape, source.value.shape)
        features = np.broadcast_to(view.index % F, shape).reshape(-1)
        present, first = np.unique(features, return_index=True)
        spread = Source(
            np.broadcast_to(source.value, shape).reshape(-1),
            None if source.elements is None else np.broadcast_to(source.elements, shape).reshape(-1),
        )
        bias = spread.take(first)
        if not np.array_equal(spread.value, bias.value[np.searchsorted(present, features)]):
            raise NotUnderstood("a constant is added that differs from one position to the next")
        index = np.broadcast_to(view.index, shape)
        if isinstance(root, Sum):
            one, other = (root.one, root.other) if _unbiased(root.other.root) else (root.other, root.one)
            assert isinstance(other.root, Linear)
            linear = other.root
            mapped = self.add(Linear(linear.shape, linear.name, linear.of, linear.weight, bias, linear.heads))
            return View(self.add(Sum(root.shape, node.output[0], one, View(mapped, other.index))), index)
        assert isinstance(root, Linear)
        if root.heads > 1:
            present, bias = present[: F // root.heads], bias.take(slice(F // root.heads))
            weight, width = root.weight, F
        else:
            weight, width = root.weight.take(slice(None), present), len(present)
            index = index // F * width + np.searchsorted(present, index % F)
        mapped = self.add(Linear((root.shape[0], width), node.output[0], root.of, weight, bias, root.heads))
        return View(mapped, index)

    def _sum(self, node: onnx.NodeProto) -> View:
        names = [name for name in node.input if name]
        if node.op_type not in ("Add", "Sum") or len(names) != 2:
            raise NotUnderstood(f"{node.op_type} of two different things that depend on x")
        one, two = (self.closed(name) for name in names)
        if one.root is two.root:
            return self._local(node, [one, two])  # type: ignore[return-value]
        if isinstance(one.root, Scores | Weights) or isinstance(two.root, Scores | Weights):
            raise NotUnderstood("a sum of scores or weights of attention with something else that depends on x")
        if one.factor != 1 or two.factor != 1:
            raise NotUnderstood(f"a residual sum of {one.factor:.6g} times one and {two.factor:.6g} times the other")
        if one.root.shape != two.root.shape or not np.array_equal(one.index, two.index):
            raise NotUnderstood("a sum of elements of different positions or features")
        return View(self.add(Sum(one.root.shape, node.output[0], one, two)), one.index)

    def _of_rows(self, node: onnx.NodeProto) -> Local:
        """A reduction, or a function of whole rows."""
        name = node.input[0]
        value = self.value(name)
        if isinstance(value, Local) and value.rowwise and not value.reduced:
            try:  # a norm after a norm: the first is one for itself
                value = self.values[name] = closing.close(self, name, value)
            except NotUnderstood:
                value = self.value(name)
        if any(other in self.values for other in node.input[1:]):
            raise NotUnderstood(f"{node.op_type} with parameters that depend on x")
        assert isinstance(value, View | Local)
        if isinstance(value, Local) and value.reduced:
            raise NotUnderstood(f"{node.op_type} of what is one number a row already")
        axes = axes_of(node, value.index.ndim, self.graph.opsets.get("", 1), self.number)
        axis, rows = row_axis(value.root, value.index, axes)
        if isinstance(value, Local) and value.rowwise and value.axis != axis:
            raise NotUnderstood("rows in two directions")
        if node.op_type in ROWWISE:
            return Local(value.root, value.index, True, False, axis)
        if not attributes(node).get("keepdims", 1):
            rows = rows.squeeze(axes)
        return Local(value.root, rows, True, True, axis)


def drops(node: onnx.NodeProto, number: Callable[[str], Array]) -> bool:
    """Whether a Dropout node drops."""
    held = [bool(number(name).any()) if name else False for name in node.input[1:]]
    return len(held) == 2 and all(held)


def _unbiased(root: Root) -> bool:
    return isinstance(root, Linear) and root.bias is None
