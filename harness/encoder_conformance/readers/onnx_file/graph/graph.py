"""The working copy of a model: functions inlined, Constant nodes as initializers, each value's producer indexed."""

from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import cached_property
from itertools import accumulate
from math import prod

import numpy as np
import onnx
import onnx.inliner
from onnx import numpy_helper

from encoder_conformance.readers.onnx_file.graph.integers import is_quantised, stored_integers, to_real_numbers
from encoder_conformance.readers.onnx_file.graph.lowering import is_fused, lower
from encoder_conformance.readers.onnx_file.graph.nodes import (
    STANDARD,
    attributes_of,
    inputs_of,
    leading_to,
    replace_nodes,
)
from encoder_conformance.readers.onnx_file.graph.operators import IDENTITIES, MOVES
from encoder_conformance.spec.axes import Array

NUMBERS = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
"""An attribute of Constant nodes that is no tensor → the format of its numbers."""


class Graph:
    """`original` has the nodes of the file. `model` is written in ONNX's own operators; every value keeps its name.

    `quantised`: the file rounds activations to integers, and `model` computes with the numbers that they stand for.
    `integers` says of the values that integer weights become how they are stored.
    """

    def __init__(self, source: onnx.ModelProto, *, copied: bool = True) -> None:
        """Not `copied`: `source` is changed in place, and is this graph's from now on."""
        model = deepcopy(source) if copied else source
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        constants_to_initializers(model.graph)
        self.original = model
        self.quantised = is_quantised(model.graph)
        self.integers = stored_integers(model.graph)
        if self.quantised or any(
            is_fused(node) or (node.op_type == "Dropout" and len(node.input) > 2) for node in model.graph.node
        ):
            self.original = deepcopy(model)
            packed = lower(model)
            self.quantised = self.quantised or is_quantised(model.graph)
            self.integers |= stored_integers(model.graph) | packed | to_real_numbers(model.graph, rounded=False)
        for node in model.graph.node:
            if node.op_type == "Dropout":  # in training mode it drops at random, which is said; it is looked at without
                del node.input[1:]
        self.model, self.nodes = model, model.graph.node
        self.opsets = {entry.domain: entry.version for entry in model.opset_import}
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self.inputs = [info for info in model.graph.input if info.name not in self.initializers]
        self.producers = {name: node for node in model.graph.node for name in node.output if name}

    def rounded(self) -> onnx.ModelProto:
        """`model`, with activations rounded as the file rounds them."""
        model = deepcopy(self.original)
        lower(model)
        to_real_numbers(model.graph, rounded=True)
        return model

    @cached_property
    def original_initializers(self) -> set[str]:
        """The names of the file's own initializers."""
        return {tensor.name for tensor in self.original.graph.initializer}

    @cached_property
    def original_values(self) -> set[str]:
        """The names of the values that the file's own nodes compute."""
        return {output for node in self.original.graph.node for output in node.output}

    @cached_property
    def constants(self) -> dict[str, Array]:
        """Name → value of every initializer."""
        return {name: numpy_helper.to_array(tensor) for name, tensor in self.initializers.items()}

    def without_added_zeros(self) -> None:
        """What is added to x and is zero at every position, as positions that were not given, is nothing."""
        zeros = {
            name for name, held in self.initializers.items() if len(held.dims) > 2 and not self.constants[name].any()
        }
        for node in self.nodes:
            others = [name for name in node.input if name not in zeros]
            if node.op_type == "Add" and len(others) == 1:
                node.op_type = "Identity"
                del node.input[:]
                node.input.extend(others)

    def forget_numbers(self) -> None:
        """Drops what `constants` has read; it is read anew when it is asked for again."""
        self.__dict__.pop("constants", None)

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Name → the number of its first element, with the elements of all initializers numbered consecutively."""
        return dict(zip(self.sizes, accumulate(self.sizes.values(), initial=0), strict=False))

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Name → the number of elements of every initializer."""
        return {name: prod(tensor.dims) for name, tensor in self.initializers.items()}

    @cached_property
    def numbering(self) -> Array:
        """The numbers of all initializers' elements: what rearranges some of them takes views of it."""
        total = sum(self.sizes.values())
        return np.arange(total, dtype=np.int32 if total < 2**31 else np.int64)

    def forget_numbering(self) -> None:
        """Drops `numbering`, which a trace needs and nothing after it."""
        self.__dict__.pop("numbering", None)

    def table_of(self, node: onnx.NodeProto) -> onnx.TensorProto | None:
        """The matrix of which a node gathers rows."""
        table = self.initializers.get(node.input[0]) if node.op_type == "Gather" else None
        return table if table is not None and len(table.dims) == 2 else None

    def depending_on(self, name: str) -> set[str]:
        """`name` and the values whose numbers, not only shapes, depend on it."""
        found = {name}
        for node in self.nodes:
            if node.op_type not in ("Shape", "Size") and any(name in found for name in inputs_of(node)):
                found.update(node.output)
        return found

    def needed_by(self, names: Iterable[str], ends: Iterable[str] = ()) -> set[str]:
        """`names` and the values that they are computed from; behind `ends`, which are among them, none is."""
        return leading_to(names, self.producers, ends)

    def origin(self, name: str, ends: Callable[[onnx.NodeProto], bool] = lambda node: False) -> str:
        """The value that another is rearranged from, or the first on the way whose node `ends` it."""
        while (node := self.producers.get(name)) is not None and node.op_type in IDENTITIES | MOVES and not ends(node):
            name = node.input[0]
        return name


def constants_to_initializers(graph: onnx.GraphProto) -> None:
    """Turn each Constant node into an initializer of the same name."""
    kept = []
    for node in graph.node:
        if node.op_type != "Constant" or node.domain not in STANDARD:
            kept.append(node)
            continue
        [(kind, value)] = attributes_of(node).items()
        if kind in NUMBERS:
            value = numpy_helper.from_array(np.array(value, NUMBERS[kind]))
        elif kind != "value":  # strings, or a sparse tensor
            kept.append(node)
            continue
        graph.initializer.append(value)
        graph.initializer[-1].name = node.output[0]
    replace_nodes(graph, kept)
