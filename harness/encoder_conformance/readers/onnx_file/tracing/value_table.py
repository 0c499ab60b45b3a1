"""The value table: what each graph value is, as far as it is known, and the constants that it meets."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.execution import NodeRunner
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.operators import IDENTITIES, MOVES
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Constant,
    Operation,
    TracedInput,
    UnsupportedPattern,
    Value,
    View,
    WeightSource,
)
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS


class ValueTable:
    """`values` has an entry for each value that depends on x. `computed` has the numbers of every value of one run at
    batch B and sequence S, with masks that hide nothing."""

    def __init__(self, graph: Graph, computed: Mapping[str, Array], x: str, index: Array, B: int, S: int) -> None:
        """`index` is how x holds [B, S, d_model]."""
        self.graph, self.computed, self.B, self.S = graph, computed, B, S
        self.nodes = NodeRunner(graph.opsets)
        self.dependent = graph.depending_on(x)
        self.interned: dict[tuple[object, ...], Operation] = {}
        self.uniform_gains: dict[tuple[int, float], WeightSource | None] = {}
        """Operation and the number that multiplies it → the vector of the file that holds it once for each feature."""
        self.values: dict[str, Value] = {x: View(TracedInput((B * S, index.size // (B * S)), x), index)}

    def value(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        return Constant(self.number(name))

    def number(self, name: str) -> Array:
        """The numbers of a value that does not depend on x."""
        if name in self.graph.constants:
            return self.graph.constants[name]
        if name not in self.computed:
            raise UnsupportedPattern(f"{name!r} was not computed")
        return self.computed[name]

    def source(self, name: str) -> WeightSource:
        """A value that does not depend on x, with the initializer elements that it consists of."""
        return WeightSource(self.number(name), self.elements(name), self.graph.integers.get(self.graph.origin(name)))

    def elements(self, name: str) -> Array | None:
        """The numbers of the initializer elements that a value consists of; None where it is computed from them."""
        constants = self.graph.constants
        if name in constants:
            start = self.graph.offsets[name]
            return self.graph.numbering[start : start + constants[name].size].reshape(constants[name].shape)
        node = self.graph.producers.get(name)
        if node is None or node.op_type not in MOVES | IDENTITIES:
            return None
        inner = [self.elements(data) for data in data_inputs(node)]
        if any(elements is None for elements in inner):
            return None
        if node.op_type in IDENTITIES:
            return inner[0] if represents(self.number(name).dtype, self.number(node.input[0]).dtype) else None
        others = [self.number(other) if other else None for other in node.input[len(inner) :]]
        return self.nodes.run(node, [*inner, *others])[list(node.output).index(name)]

    def nodes_between(self, name: str, operation: Operation) -> Iterator[onnx.NodeProto]:
        """The nodes that compute the value of `name` from the operation, the last first."""
        waiting, visited = [name], set()
        while waiting:
            current = waiting.pop()
            value = self.value(current)
            if current in visited or (isinstance(value, View) and value.operation is operation):
                continue
            visited.add(current)
            node = self.graph.producers[current]
            yield node
            waiting += [each for each in node.input if each in self.values]

    def intern(self, key: tuple[object, ...], operation: Operation) -> Operation:
        """The first operation with this key: two values that show the same thing share one operation."""
        return self.interned.setdefault(key, operation)


def represents(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Whether every number of the narrow format is a number of the wide one."""
    if wide == narrow:
        return True
    known = wide.name in FORMATS and narrow.name in FORMATS
    # Float16 has more digits than bfloat16, and less range: neither holds the other.
    return known and wide.name in ("float32", "float64") and FORMATS[wide.name].roundoff < FORMATS[narrow.name].roundoff


def data_inputs(node: onnx.NodeProto) -> list[str]:
    """The inputs whose elements a node of MOVES rearranges; the others say how."""
    return list(node.input) if node.op_type == "Concat" else [node.input[0]]
