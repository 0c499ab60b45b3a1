"""Cuts the encoder out of a whole model: from what the layers take, behind an embedding, to the hidden states.

What stands before (an embedding, a convolution) is taken as given numbers; what comes after (a pooler, a head) is left
aside. Both are said.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial

import onnx
from onnx import helper

from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.lowering import is_embedding, lower
from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, inputs_of, node_label, passed_on, takers_of
from encoder_conformance.readers.onnx_file.graph.operators import CONVOLUTIONS, FLOAT_TYPES, IDENTITIES, float_type_of
from encoder_conformance.readers.onnx_file.interface.attention import past_attention
from encoder_conformance.readers.onnx_file.interface.own_sizes import own_sizes, taken_from_x
from encoder_conformance.readers.onnx_file.interface.ports import FLOATS, INTEGERS, port_of
from encoder_conformance.readers.onnx_file.reading.checker import without_weights

FUSED_EMBEDDINGS = frozenset(("EmbedLayerNormalization", "QEmbedLayerNormalization"))
_SKIPPED = frozenset(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"))
MOST_OUTPUTS = 12
"""Values that are tried as the hidden states, the last first."""
MOST_OF_LATER = 4
"""Of those, of a later start: a final norm that is written out ends in two sums, and a residual sum is before it."""
MOST_STARTS = 6
"""Values after the first that are tried as what the layers take."""
SizesOf = Callable[[str], dict[str, tuple[int, tuple[int, ...]]]]
Shapes = dict[str, tuple[int | str | None, ...]]
"""Value → its sizes, as far as they are known."""
_PASSED = frozenset(
    ("Add", "Sum", "Mul", "LayerNormalization", "Transpose", "Reshape", "Flatten", "Concat", "Gelu", "Erf", "Relu")
) | IDENTITIES  # fmt: skip
"""Operators between a convolution and the first layer."""
ADDED = frozenset(("Add", "Sum", "Mul", "LayerNormalization", "DequantizeLinear")) | IDENTITIES
"""Operators between an embedding and the first layer: sums with positions and token types, a factor, a norm."""
_OF_A_BYTE = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)


@dataclass(frozen=True)
class Cut:
    """A model from `x` on. `before` is what makes x, `inputs` the graph's own that it takes, and those that nothing
    takes any more; `output` are the hidden states, `after` the outputs that are left aside."""

    model: onnx.ModelProto
    x: str
    before: str
    inputs: tuple[str, ...]
    output: str
    after: tuple[str, ...]


@dataclass(frozen=True)
class TokenEmbedding:
    """`ids` is the graph's input, `rows` the number of tokens. The layers take `output` and the inputs `beside`, from
    which the graph's outputs are reached past it."""

    ids: str
    rows: int
    node: str
    output: str
    beside: tuple[str, ...]


def cuts(graph: Graph) -> Iterator[Cut]:
    """The likeliest first; none where nothing before the layers was found."""
    past, shapes, made = past_attention(graph), _shapes(graph.original), False
    if (start := _start(graph, past)) is not None:
        later = _later_starts(graph, start[0], shapes)[:MOST_STARTS]
    elif (start := _behind_an_input(graph, past, shapes)) is not None:
        later = []
    else:
        return
    (x, before), sizes_of = start, cache(partial(own_sizes, graph))
    for number, each in enumerate([x, *later]):
        if len(shapes.get(each, (None,) * 3)) not in (2, 3):  # as a convolution over two axes gives
            continue
        hidden = [name for name in _hidden_states(graph, each, shapes) if _may_be_alike(shapes, each, name)]
        hidden = [name for name in hidden if not past or name in past]
        for output in hidden[: MOST_OF_LATER if number else MOST_OUTPUTS]:
            made = True
            yield _cut(graph, each, before, output, shapes, sizes_of)
    for output in _hidden_states(graph, x, shapes)[: not made]:
        yield _cut(graph, x, before, output, shapes, sizes_of)


def _may_be_alike(shapes: Shapes, one: str, other: str) -> bool:
    """Whether two values may have one shape, as a layer's input and output have: no known sizes differ."""
    first, second = shapes.get(one), shapes.get(other)
    if first is None or second is None:
        return True
    sizes = zip(first, second, strict=False)
    known = (pair for pair in sizes if isinstance(pair[0], int) and isinstance(pair[1], int))
    return len(first) == len(second) and all(a == b for a, b in known)


def _start(graph: Graph, past: Collection[str]) -> tuple[str, str] | None:
    """The value that the layers take, and what makes it. `past`: the values past attention."""
    integers = [port.name for port in map(port_of, graph.inputs) if port.dtype in INTEGERS]
    nodes = graph.original.graph.node
    fused = next((node for node in nodes if node.op_type in FUSED_EMBEDDINGS), None)
    if fused is not None:
        return fused.output[0], f"the embedding {node_label(fused)}"
    if found := embedding(graph, integers):
        own = _own_value(graph, found.output)
        return (own, f"the embedding over {found.rows} ids, {found.node}") if own else None
    convolutions = [node for node in nodes if node.op_type in CONVOLUTIONS and node.output[0] not in past]
    if convolutions:
        start = passed_on(convolutions[-1].output[0], takers_of(nodes), _PASSED)
        return start, f"the convolution {node_label(convolutions[-1])}"
    return None


def _behind_an_input(graph: Graph, past: Collection[str], shapes: Shapes) -> tuple[str, str] | None:
    """The last value before attention by which alone outputs depend on an input of numbers, and what makes it: a map,
    positions or a norm may stand before the layers."""
    outputs = {info.name for info in graph.model.graph.output}
    for port in map(port_of, graph.inputs):
        if not past or port.dtype not in FLOATS or len(port.shape or ()) != 3:
            continue
        for name in reversed(_later_starts(graph, port.name, shapes)):
            if name not in past and outputs.isdisjoint(_reached(graph, port.name, without=name)):
                maker = next(node for node in graph.original.graph.node if name in node.output)
                return name, node_label(maker)
    return None


def _reached(graph: Graph, name: str, without: str) -> set[str]:
    """The values whose numbers depend on `name` otherwise than by the value `without`."""
    found = {name}
    for node in graph.original.graph.node:
        if node.op_type not in ("Shape", "Size") and not found.isdisjoint(inputs_of(node)):
            found.update(each for each in node.output if each != without)
    return found


def _later_starts(graph: Graph, x: str, shapes: Shapes) -> list[str]:
    """Values [batch, sequence, features] that depend on `x` and that several nodes take, as a layer's input is taken: a
    projection or an activation may stand before the first layer."""
    takers, dependent = takers_of(graph.original.graph.node), graph.depending_on(x) - {x}
    made = [name for node in graph.original.graph.node for name in node.output if name in dependent]
    return [name for name in made if len(takers.get(name, ())) > 1 and len(shapes.get(name, ())) == 3]


def _own_value(graph: Graph, name: str) -> str | None:
    """The file's own value: what a fused sum and norm makes inside is none, and its norm is."""
    if name in graph.original_values:
        return name
    makers = [node for node in graph.original.graph.node if node.op_type in _SKIPPED]
    return next((node.output[0] for node in makers if name.startswith(node.output[0])), None)


def _shapes(model: onnx.ModelProto) -> Shapes:
    """The shapes that shape inference knows. Large initializers are declared by shape alone."""
    try:
        light = onnx.shape_inference.infer_shapes(without_weights(model), data_prop=True)
    except Exception:
        return {}
    infos = (*light.graph.value_info, *light.graph.output)
    known: Shapes = {info.name: shape for info in infos if (shape := port_of(info).shape) is not None}
    ranks: Shapes = {
        node.output[0]: (None,) * len(attributes_of(node)["perm"])
        for node in model.graph.node
        if node.op_type == "Transpose" and "perm" in attributes_of(node)
    }
    return ranks | known


def _hidden_states(graph: Graph, x: str, shapes: Shapes) -> list[str]:
    """The values that may be the encoder's output, the likeliest first: an output in the shape of x; else the last
    norms and sums that an output depends on."""
    dependent = graph.depending_on(x) - {x}
    width = _width(graph, x, shapes)
    outputs = [info.name for info in graph.model.graph.output]
    fitting = [name for name in outputs if len(shape := shapes.get(name, ())) == 3 and shape[-1] in (width, None)]
    needed = graph.needed_by(outputs) & dependent
    ends = ("LayerNormalization", "Add", *_SKIPPED, "RMSNormalization", "SimplifiedLayerNormalization")
    nodes = [node for node in graph.original.graph.node if node.op_type in ends]
    made = [node.output[0] for node in nodes if node.output[0] in needed]
    return list(dict.fromkeys([*(name for name in fitting if name in dependent), *reversed(made)]))


def _width(graph: Graph, x: str, shapes: Shapes) -> int | str | None:
    """d_model: the last axis of x, else the size of the first norm's gain after it."""
    known = shapes.get(x, (None,))[-1]
    if isinstance(known, int):
        return known
    for node in graph.original.graph.node:
        if node.op_type in FUSED_EMBEDDINGS and node.output[0] == x:
            return int(graph.initializers[node.input[2]].dims[1])
    dependent = graph.depending_on(x)
    for node in graph.nodes:
        if node.op_type == "LayerNormalization" and node.input[0] in dependent and node.input[1] in graph.constants:
            return int(graph.constants[node.input[1]].size)
    return None


def _cut(graph: Graph, x: str, before: str, output: str, shapes: Shapes, sizes_of: SizesOf) -> Cut:
    """`sizes_of`: what is computed of an input's sizes, and is a size of x (`own_sizes`)."""
    model = graph.original
    if any(node.op_type in FUSED_EMBEDDINGS for node in model.graph.node):
        model = deepcopy(graph.original)
        lower(model, is_embedding)  # whose second output, of the mask, may be needed without the first
    kept, needed = _leading_to(output, model.graph.node, x)
    places = list[onnx.TensorProto]()
    if any(info.name in needed and x in graph.depending_on(info.name) for info in graph.inputs):
        for name, (axis, shape) in sizes_of(x).items():
            nodes, place = taken_from_x(name, x, axis, shape)
            kept = [*nodes, *(node for node in kept if name not in node.output)]
            places.append(place)
        kept, needed = _leading_to(output, kept, x)
    dtype = float_type_of(graph.original.graph)
    sizes: list[int | str | None] = list(shapes.get(x) or ("batch", "sequence", None))
    if len(sizes) == 3:
        sizes[2] = _width(graph, x, shapes)
    inputs = [info for info in model.graph.input if info.name in needed or info.name in graph.initializers]
    outputs = {info.name: info.type.tensor_type.elem_type for info in model.graph.output}
    found = onnx.ModelProto(
        ir_version=model.ir_version, producer_name=model.producer_name, producer_version=model.producer_version,
        opset_import=model.opset_import, functions=model.functions,
    )  # fmt: skip
    found.graph.name = model.graph.name
    found.graph.node.extend(kept)
    found.graph.input.extend([helper.make_tensor_value_info(x, dtype, sizes), *inputs])
    found.graph.output.append(helper.make_tensor_value_info(output, outputs.get(output, dtype), sizes))
    found.graph.initializer.extend(t for t in (*model.graph.initializer, *places) if t.name in needed)
    declared = (info.name for info in graph.inputs)
    before_x = tuple(name for name in declared if name not in needed or x in graph.depending_on(name))
    return Cut(found, x, before, before_x, output, tuple(name for name in outputs if name != output))


def _leading_to(output: str, nodes: Sequence[onnx.NodeProto], x: str) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes that make a value of x, in their order, and the values that they take and make."""
    needed, kept = {output}, list[onnx.NodeProto]()
    for node in reversed(nodes):
        if any(name in needed and name != x for name in node.output):
            needed.update(inputs_of(node))
            kept.append(node)
    return kept[::-1], needed


def embedding(graph: Graph, integers: Collection[str]) -> TokenEmbedding | None:
    """The largest table whose rows one of these inputs selects."""
    found: list[TokenEmbedding] = []
    takers = takers_of(graph.nodes)
    for node in graph.nodes:
        table = graph.table_of(node)
        if table is None or table.data_type not in (*FLOAT_TYPES, *_OF_A_BYTE):
            continue
        ids = graph.origin(node.input[1])
        if ids in integers:
            output = passed_on(node.output[0], takers, ADDED)
            needed = graph.needed_by([info.name for info in graph.model.graph.output], ends=[output])
            beside = tuple(info.name for info in graph.inputs if info.name in needed)
            found.append(TokenEmbedding(ids, table.dims[0], node_label(node), output, beside))
    return max(found, key=lambda one: one.rows, default=None)
