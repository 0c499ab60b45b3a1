"""Sizes that layers compute of the model's input, where they are those of x: of so many frames half the positions.

An exporter that knows sizes as expressions takes them from the input, whose numbers the layers do not take. An encoder
that is cut out of its model has x alone.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from encoder_conformance.protocol.description import Port
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError, values_of
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import inputs_of
from encoder_conformance.readers.onnx_file.interface.ports import FLOATS, port_of
from encoder_conformance.spec.axes import Array

_SIZES = ((32, 48, 80), (3200, 4800, 8000))
"""Of free axes, by run: pixels and frames, and samples of sound. They are large enough for several convolutions, and
no two of a run make one number of positions."""
_ITEMS = (2, 3, 2)
Run = Mapping[str, Array]
"""Value → what it is in one run."""


def own_sizes(graph: Graph, x: str) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Value of one integer that is computed of an input's sizes alone, not of x → the axis of x whose size it is at
    every size that was tried, and its shape."""
    ports = [port for port in map(port_of, graph.inputs) if port.dtype in FLOATS and x in graph.depending_on(port.name)]
    names = list(_of_sizes(graph, {port.name for port in ports}))
    if not names or any(port.shape is None for port in ports):
        return {}
    runs = next((found for sizes in _SIZES if (found := _runs(graph, x, names, ports, sizes))), [])
    axes = {name: _axis(name, x, runs) for name in names} if runs else {}
    return {name: (axis, runs[0][name].shape) for name, axis in axes.items() if axis is not None}


def _of_sizes(graph: Graph, inputs: set[str]) -> Iterator[str]:
    """The values that are computed of these inputs' shapes, and of constants."""
    found, constants = set[str](), {tensor.name for tensor in graph.original.graph.initializer}
    for node in graph.original.graph.node:
        taken = [name for name in inputs_of(node) if name]
        is_shape = node.op_type == "Shape" and taken[0] in inputs
        if is_shape or (not found.isdisjoint(taken) and found.issuperset({*taken} - constants)):
            found.update(node.output)
            if len(node.output) == 1:  # of which nothing else would be lost
                yield node.output[0]


def _runs(graph: Graph, x: str, names: Sequence[str], ports: Sequence[Port], sizes: Sequence[int]) -> list[Run]:
    """x and these values, with inputs of these sizes; none where it does not run at one of them."""
    front = _front(graph, [x, *names])
    taken = {info.name for info in front.graph.input}
    try:
        return [
            values_of(front, [x, *names], {port.name: _zeros(port, *each) for port in ports if port.name in taken})
            for each in zip(_ITEMS, sizes, strict=True)
        ]
    except ExecutionError:
        return []


def _front(graph: Graph, names: Sequence[str]) -> onnx.ModelProto:
    """The nodes that make these values, and nothing else."""
    whole = graph.original
    needed, kept = {*names}, list[onnx.NodeProto]()
    for node in reversed(whole.graph.node):
        if not needed.isdisjoint(node.output):
            needed.update(inputs_of(node))
            kept.append(node)
    found = onnx.ModelProto(ir_version=whole.ir_version, opset_import=whole.opset_import, functions=whole.functions)
    found.graph.name = whole.graph.name
    found.graph.node.extend(reversed(kept))
    found.graph.input.extend(info for info in whole.graph.input if info.name in needed)
    found.graph.initializer.extend(tensor for tensor in whole.graph.initializer if tensor.name in needed)
    found.graph.output.append(onnx.ValueInfoProto(name=names[0]))
    return found


def _zeros(port: Port, items: int, size: int) -> Array:
    """An input with so many items, its first axis, and the other free ones of about this size, each symbol its own."""
    symbols = list(dict.fromkeys(each for each in (port.shape or ())[1:] if not isinstance(each, int)))
    free = {symbol: size + 16 * number for number, symbol in enumerate(symbols)}
    first, *rest = port.shape or ()
    shape = (first if isinstance(first, int) else items, *(n if isinstance(n, int) else free[n] for n in rest))
    return np.zeros(shape, np.dtype(port.dtype))


def _axis(name: str, x: str, runs: Sequence[Run]) -> int | None:
    """The axis of x whose size a value is in every run, before that of features."""
    if any(run[name].dtype != np.int64 or run[name].size != 1 for run in runs):
        return None
    axes = range(runs[0][x].ndim - 1)
    fitting = [axis for axis in axes if all(run[name].item() == run[x].shape[axis] for run in runs)]
    return fitting[0] if len(fitting) == 1 and len({run[name].item() for run in runs}) > 1 else None


def taken_from_x(name: str, x: str, axis: int, shape: tuple[int, ...]) -> tuple[list[onnx.NodeProto], onnx.TensorProto]:
    """The nodes that make a value of this shape, the size of an axis of x, and the constant that they take."""
    place = helper.make_tensor(f"{name}/axis", TensorProto.INT64, shape, [axis])
    sizes = helper.make_node("Shape", [x], [f"{name}/sizes"])
    return [sizes, helper.make_node("Gather", [f"{name}/sizes", place.name], [name])], place
