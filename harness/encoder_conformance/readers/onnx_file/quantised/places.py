"""The operators of a file that compute with integers, and the same file in which some of them are left in float."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from encoder_conformance.protocol.quantised import WeightInFloat
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import (
    attributes_of,
    input_at,
    leading_to,
    node_label,
    replace_nodes,
    takers_of,
)
from encoder_conformance.readers.onnx_file.quantised.weights import FloatWeight, StoredWeights

QUANTISERS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class IntegerOperator:
    """`node`: the operator; `output`: its value in real numbers. `real`: place of an input → the value before that was
    rounded. `weights`: place → the weight. `operands`: its float operator, and what more that takes; (): its own.
    `bias`: what an operator adds itself that its float operator does not."""

    node: onnx.NodeProto
    output: str
    real: Mapping[int, str] = field(default_factory=dict)
    weights: Mapping[int, FloatWeight] = field(default_factory=dict)
    operands: tuple[str, ...] = ()
    bias: str = ""

    @property
    def label(self) -> str:
        return node_label(self.node)

    @property
    def weight(self) -> WeightInFloat:
        """Whose weight it has in float: "source", "rounded", or "" for none."""
        if not self.weights:
            return ""
        return "source" if all(each.is_source for each in self.weights.values()) else "rounded"


class IntegerOperators:
    """Finds them in the file's own nodes."""

    def __init__(self, graph: Graph, weights: StoredWeights) -> None:
        self._nodes, self._weights = graph.original.graph.node, weights
        self._makers = {output: node for node in self._nodes for output in node.output if output}
        self._takers = takers_of(self._nodes)

    def found(self) -> Iterator[IntegerOperator]:
        for node in self._nodes:
            if node.op_type in (*QUANTISERS, "Shape", "Size"):
                continue
            kind = {
                "MatMulInteger": self._integer_product, "MatMulNBits": self._packed, "QAttention": self._attention,
                "DynamicQuantizeMatMul": self._dynamic_product, "MatMulIntegerToFloat": self._real_product,
            }.get(node.op_type, self._between_pairs)  # fmt: skip
            if (found := kind(node)) is not None:
                yield found

    def _between_pairs(self, node: onnx.NodeProto) -> IntegerOperator | None:
        """Of operands that were rounded and read back right before: QDQ; and of weights that Cast and Mul read back."""
        real: dict[int, str] = {}
        weights: dict[int, FloatWeight] = {}
        for place, name in enumerate(node.input):
            back = self._makers.get(name)
            if (weight := self._weights.of_cast(name)) is not None:
                weights[place] = weight
            if back is None or back.op_type != "DequantizeLinear":
                continue
            rounded = self._makers.get(back.input[0])
            if rounded is not None and rounded.op_type == "QuantizeLinear":
                real[place] = rounded.input[0]
            elif (weight := self._weights.of_dequantised(back)) is not None:
                weights[place] = weight
        return IntegerOperator(node, node.output[0], real, weights) if real or weights else None

    def _rounded_by(self, integers: str) -> str:
        """The value before it was rounded by its own scale; "" where nothing shows it."""
        maker = self._makers.get(integers)
        return maker.input[0] if maker is not None and maker.op_type in QUANTISERS else ""

    def _integer_product(self, node: onnx.NodeProto) -> IntegerOperator | None:
        """MatMulInteger, and behind it Cast and Mul, which scale its sums."""
        weight, x, value = self._weights.of_product(node), self._rounded_by(node.input[0]), node.output[0]
        for operator in ("Cast", "Mul"):
            takers = self._takers.get(value, [])
            if len(takers) != 1 or takers[0].op_type != operator:
                return None
            value = takers[0].output[0]
        if weight is None or not x:
            return None
        return IntegerOperator(node, value, {0: x}, {1: weight}, ("MatMul",))

    def _packed(self, node: onnx.NodeProto) -> IntegerOperator | None:
        weight = self._weights.of_product(node)
        if weight is None or input_at(node, 4):
            return None
        return IntegerOperator(node, node.output[0], {0: node.input[0]}, {1: weight}, ("MatMul",), input_at(node, 5))

    def _dynamic_product(self, node: onnx.NodeProto) -> IntegerOperator | None:
        weight = self._weights.of_columns(node.input[1], node.input[2], input_at(node, 3))
        if weight is None:
            return None
        return IntegerOperator(node, node.output[0], {0: node.input[0]}, {1: weight}, ("MatMul",), input_at(node, 4))

    def _real_product(self, node: onnx.NodeProto) -> IntegerOperator | None:
        weight, x = (
            self._weights.of_columns(node.input[1], node.input[3], input_at(node, 5)),
            self._rounded_by(node.input[0]),
        )
        if weight is None or not x:
            return None
        return IntegerOperator(node, node.output[0], {0: x}, {1: weight}, ("MatMul",), input_at(node, 6))

    def _attention(self, node: onnx.NodeProto) -> IntegerOperator | None:
        """QAttention, whose float form is Attention."""
        weight, x = (
            self._weights.of_columns(node.input[1], node.input[4], input_at(node, 7)),
            self._rounded_by(node.input[0]),
        )
        if weight is None or not x:
            return None
        others = (input_at(node, 2), input_at(node, 5), input_at(node, 8))
        return IntegerOperator(node, node.output[0], {0: x}, {1: weight}, ("Attention", *others))


def left_in_float(model: onnx.ModelProto, places: Sequence[IntegerOperator]) -> onnx.ModelProto:
    """The file in which these are computed in float, with the source's weights where those are known."""
    changed = deepcopy(model)
    made: dict[str, list[onnx.NodeProto]] = {}
    for place in places:
        made[place.node.output[0]] = _in_float(place, changed.graph)
    gone = {place.output for place in places}
    kept: list[onnx.NodeProto] = []
    for node in changed.graph.node:
        if node.output[0] in made:
            kept += made.pop(node.output[0])
        elif node.output[0] not in gone:
            kept.append(node)
    replace_nodes(changed.graph, kept)
    _drop_unused(changed.graph)
    return changed


def _in_float(place: IntegerOperator, graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The node, or nodes, in the place of an operator."""
    named = {at: _held(f"{place.output}/float/{at}", weight, graph) for at, weight in place.weights.items()}
    named |= place.real
    if not place.operands:
        node = deepcopy(place.node)
        for at, name in named.items():
            node.input[at] = name
        return [node]
    operator, *more = place.operands
    if operator == "Attention":
        bias, mask, past = more
        inputs = [named[0], named[1], bias, mask, past]
        while not inputs[-1]:
            inputs.pop()
        attributes = {
            name: value for name, value in attributes_of(place.node).items() if name != "past_present_share_buffer"
        }
        made = helper.make_node(operator, inputs, [*place.node.output], f"{place.output}/in-float", domain=MICROSOFT)
        made.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        return [made]
    product = f"{place.output}/float" if place.bias else place.output
    nodes = [helper.make_node(operator, [named[0], named[1]], [product], f"{place.output}/in-float")]
    if place.bias:
        nodes.append(helper.make_node("Add", [product, place.bias], [place.output]))
    return nodes


def _held(name: str, weight: FloatWeight, graph: onnx.GraphProto) -> str:
    """Adds the weight to the graph."""
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(weight.value, np.float32), name))
    return name


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Nodes and initializers that no output is computed from any more."""
    makers = {output: node for node in graph.node for output in node.output if output}
    needed = leading_to([info.name for info in graph.output], makers)
    replace_nodes(graph, [node for node in graph.node if _is_needed(node, needed)])
    used = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.initializer[:]
    graph.initializer.extend(used)
    values = [info for info in graph.value_info if info.name in needed]
    del graph.value_info[:]
    graph.value_info.extend(values)


def _is_needed(node: onnx.NodeProto, needed: Collection[str]) -> bool:
    return any(output in needed for output in node.output)
