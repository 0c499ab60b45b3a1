"""What is known so far of the values of a graph, and of the constants that they meet."""

from collections.abc import Mapping

import numpy as np
import onnx

from encoder_conformance.impls.onnx_file.graph.execution import Nodes
from encoder_conformance.impls.onnx_file.graph.graph import Graph
from encoder_conformance.impls.onnx_file.graph.operators import IDENTITIES, MOVES
from encoder_conformance.impls.onnx_file.tracing import recognition as closing
from encoder_conformance.impls.onnx_file.tracing.expressions import (
    Array,
    Fixed,
    Given,
    Local,
    NotUnderstood,
    Root,
    Source,
    Unknown,
    Value,
    View,
)
from encoder_conformance.spec.dtypes import FORMATS


class Known:
    """`trace` holds the value of everything that does not depend on x, at batch B and sequence S, with the masks
    hiding nothing; `values` has what each value that depends on it is."""

    def __init__(self, graph: Graph, trace: Mapping[str, Array], x: str, index: Array, B: int, S: int) -> None:
        """`index` is how x holds [B, S, d_model]."""
        self.graph, self.trace, self.B, self.S = graph, trace, B, S
        self.nodes = Nodes(graph.opsets)
        self.moving = graph.depending_on(x)
        self.roots: list[Root] = []
        self.kept: dict[tuple[object, ...], Root] = {}
        given = self.add(Given((B * S, index.size // (B * S)), x))
        self.values: dict[str, Value] = {x: View(given, index)}
        self.dropping: list[str] = []
        """Dropout nodes that are at work: the file was exported in training mode."""

    def value(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        return Fixed(self.number(name))

    def number(self, name: str) -> Array:
        """Of a value that does not depend on x."""
        if name in self.graph.constants:
            return self.graph.constants[name]
        if name not in self.trace:
            raise NotUnderstood(f"{name!r} was not computed")
        return self.trace[name]

    def source(self, name: str) -> Source:
        """A value that does not depend on x, with the initializers' elements that it is made of."""
        return Source(self.number(name), self._elements(name))

    def _elements(self, name: str) -> Array | None:
        constants = self.graph.constants
        if name in constants:
            return np.arange(constants[name].size).reshape(constants[name].shape) + self.graph.offsets[name]
        node = self.graph.makers.get(name)
        if node is None or node.op_type not in MOVES | IDENTITIES:
            return None
        inner = [self._elements(given) for given in data_of(node)]
        if any(elements is None for elements in inner):
            return None
        if node.op_type in IDENTITIES:
            return inner[0] if holds(self.number(name).dtype, self.number(node.input[0]).dtype) else None
        others = [self.number(given) if given else None for given in node.input[len(inner) :]]
        return self.nodes.run(node, [*inner, *others])[list(node.output).index(name)]

    def closed(self, name: str) -> View:
        """The value as a view of something named; raises NotUnderstood."""
        value = self.value(name)
        if isinstance(value, Local):
            value = self.values[name] = closing.close(self, name, value)
        if isinstance(value, Unknown):
            raise NotUnderstood(f"{value.reason} ({value.node})")
        if not isinstance(value, View):
            raise NotUnderstood(f"{name!r} does not depend on x")
        return value

    def tried(self, name: str) -> Value:
        """The value, named if it can be."""
        try:
            return self.closed(name)
        except NotUnderstood:
            return self.value(name)

    def add(self, root: Root) -> Root:
        self.roots.append(root)
        return root

    def intern(self, key: tuple[object, ...], made: Root) -> Root:
        """The root of this key, so that one thing that two values show is one root."""
        if key not in self.kept:
            self.kept[key] = self.add(made)
        return self.kept[key]


def holds(wide: np.dtype, narrow: np.dtype) -> bool:
    """Whether every number of the one format is a number of the other."""
    if wide == narrow:
        return True
    known = wide.name in FORMATS and narrow.name in FORMATS
    # Float16 has more digits than bfloat16, and less of a range: neither holds the other.
    return known and wide.name in ("float32", "float64") and FORMATS[wide.name].roundoff < FORMATS[narrow.name].roundoff


def data_of(node: onnx.NodeProto) -> list[str]:
    """The inputs of a node that rearranges whose elements it rearranges; the others say how."""
    return list(node.input) if node.op_type == "Concat" else [node.input[0]]
