"""Follows what stands before the encoder, as far as it is an embedding: rows of tables, sums, a norm, a linear map."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, reduce

import numpy as np
import onnx
from onnx import numpy_helper

from encoder_conformance import Tensors
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.forms.norm import layer_norm
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of
from encoder_conformance.readers.onnx_file.graph.operators import FLOAT_TYPES, IDENTITIES, MOVES
from encoder_conformance.spec.axes import Array


class Unfollowed(Exception):
    """A value before the encoder that is no sum of rows, norm or linear map."""


@dataclass
class Front:
    """The part of a graph before the encoder. `rows`: each Gather of a table; `traced`: values out of the run."""

    graph: Graph
    rows: list[onnx.NodeProto] = field(default_factory=list)
    traced: set[str] = field(default_factory=set)
    normed: bool = False
    _numbers: dict[str, Array] = field(default_factory=dict)

    def plan(self, name: str) -> None:
        """Finds out what is needed of a run to compute this value; raises Unfollowed."""
        node = self._node(name)
        if node is None:
            return
        if self._is_rows(node):
            self.rows.append(node)
            self.traced.add(node.input[1])
        elif node.op_type in MOVES or node.op_type == "Constant":
            if name in self._of_inputs:
                raise Unfollowed(node.op_type)
            self.traced.add(name)
            below = self.graph.producers.get(self.graph.origin(name, self._is_rows))
            if below is not None and self._is_rows(below):
                self.rows.append(below)
                self.traced.add(below.input[1])
        else:
            self.normed |= node.op_type == "LayerNormalization"
            for each in self._operands(node):
                self.plan(each)

    def value(self, name: str, a: Arithmetic, run: Tensors) -> Array:
        node = self._node(name)
        if node is None:
            return a.exact(self._number(name))
        if self._is_rows(node):
            return a.exact(self._number(node.input[0])[run[node.input[1]]])
        if name in run and name in self.traced:
            return a.exact(run[name])
        return self._computed(node, a, [self.value(each, a, run) for each in self._operands(node)])

    def _number(self, name: str) -> Array:
        """One initializer: of all, a large file has too many."""
        if name not in self._numbers:
            self._numbers[name] = numpy_helper.to_array(self.graph.initializers[name])
        return self._numbers[name]

    def _node(self, name: str) -> onnx.NodeProto | None:
        if name in self.graph.initializers:
            return None
        node: onnx.NodeProto | None = self.graph.producers.get(name)
        if node is None:
            raise Unfollowed("an input")
        return node

    def _is_rows(self, node: onnx.NodeProto) -> bool:
        table = self.graph.initializers.get(node.input[0]) if node.op_type == "Gather" else None
        return table is not None and len(table.dims) == 2 and table.data_type in FLOAT_TYPES

    @cached_property
    def _of_inputs(self) -> set[str]:
        """The values whose numbers depend on an input."""
        return {value for info in self.graph.inputs for value in self.graph.depending_on(info.name)}

    def _operands(self, node: onnx.NodeProto) -> list[str]:
        """The operands that are computed; raises Unfollowed."""
        names = [name for name in node.input if name]
        if node.op_type in ("Pow", "ReduceMean") or node.op_type in IDENTITIES:
            return names[:1]
        if node.op_type not in _COMPUTED and node.op_type != "LayerNormalization":
            raise Unfollowed(node.op_type)
        return names

    def _computed(self, node: onnx.NodeProto, a: Arithmetic, values: list[Array]) -> Array:
        if node.op_type == "LayerNormalization":
            epsilon = float(attributes_of(node).get("epsilon", 1e-5))
            shift = values[2] if len(values) > 2 else np.zeros_like(values[1])
            return layer_norm(a, values[0], values[1], shift, epsilon)[0]
        return _COMPUTED[node.op_type](a, *values) if node.op_type in _COMPUTED else values[0]


_COMPUTED: dict[str, Callable[..., Array]] = {
    "Add": lambda a, *values: reduce(a.add, values),
    "Sum": lambda a, *values: reduce(a.add, values),
    "Sub": lambda a, one, other: a.subtract(one, other),
    "Mul": lambda a, one, other: a.multiply(one, other),
    "Div": lambda a, one, other: a.divide(one, other),
    "Pow": lambda a, one: a.multiply(one, one),
    "Sqrt": lambda a, one: a.sqrt(one),
    "ReduceMean": lambda a, one: a.mean(one),
    "MatMul": lambda a, one, weight: a.affine(one, weight, np.zeros(weight.shape[-1])),
}
"""An operator between a table and the encoder → what it computes of an arithmetic and its operands."""
