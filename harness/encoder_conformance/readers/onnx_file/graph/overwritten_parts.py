"""Lowers the parts of a tensor of which some rows were written over, `q, k, v = made.chunk(3, -1); q *= scale`: each
part to what was written, or to what stood there before."""

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, input_at
from encoder_conformance.readers.onnx_file.graph.parts import Parts

CUTS = frozenset(("Slice", "Split"))
"""ONNX's own operators that take parts. They are lowered where something is written over."""
_WRITES = "ScatterND"
_Bounds = tuple[int, int]
"""Where a part begins and ends along an axis."""


def writes_over(graph: onnx.GraphProto) -> bool:
    return any(node.op_type == _WRITES for node in graph.node)


def part_taken(node: onnx.NodeProto, parts: Parts) -> bool:
    """A Slice or a Split, along one axis, of what was written over."""
    axis, bounds = _taken(node, parts)
    if not bounds:
        return False
    found = [_part(node.input[0], axis, each, parts) for each in bounds]
    if any(each is None for each in found):
        return False
    for name, each in zip(node.output, found, strict=True):
        assert each is not None
        data, along, (start, stop), moves = each
        ends = {"from": start, "to": stop, "along": along}
        constants = [parts.constant(f"{name}/{end}", np.array([number], np.int64)) for end, number in ends.items()]
        last = parts.node("Slice", [data, *constants], f"{name}/part" if moves else name, name=node.name)
        for number, perm in enumerate(moves, 1):
            last = parts.node("Transpose", [last], name if number == len(moves) else f"{name}/{number}", perm=perm)
    return True


def _taken(node: onnx.NodeProto, parts: Parts) -> tuple[int, list[_Bounds]]:
    """The axis, and where each part of it begins and ends; none where the graph does not say so."""
    sizes = parts.sizes(node.input[0])
    if sizes is None:
        return 0, []
    if node.op_type == "Split":
        axis = int(attributes_of(node).get("axis", 0)) % len(sizes)
        many = len(node.output)
        held = parts.tensor(input_at(node, 1)) if input_at(node, 1) else np.full(many, -(-sizes[axis] // many))
        if held is None:
            return 0, []
        ends = np.minimum(np.cumsum(held), sizes[axis]).tolist()
        return axis, list(zip([0, *ends[:-1]], ends, strict=True))
    given = [parts.tensor(each) for each in node.input[1:]]
    if len(given) < 3 or any(each is None or each.size != 1 for each in given):
        return 0, []
    start, stop, axis, *step = (int(each.reshape(-1)[0]) for each in given if each is not None)
    along = axis % len(sizes)
    from_, to, by = slice(start, stop, step[0] if step else 1).indices(sizes[along])
    return along, [(from_, to)] if by == 1 and from_ < to else []


def _part(name: str, axis: int, bounds: _Bounds, parts: Parts) -> tuple[str, int, _Bounds, list[list[int]]] | None:
    """The value that a part is cut from, its axis and bounds there, and how the part is turned then; None of a value
    that nothing is written over, or where a part is written over in part."""
    moves = list[list[int]]()
    source, along = name, axis
    while maker := next((each for each in parts.graph.node if source in each.output), None):
        if maker.op_type == "Transpose":
            perm = [int(each) for each in attributes_of(maker)["perm"]]
            moves.insert(0, perm)
            source, along = maker.input[0], perm[along]
        elif maker.op_type == "Identity":
            source = maker.input[0]
        else:
            break
    rows = _rows_written(maker, parts) if maker is not None and maker.op_type == _WRITES and along == 0 else None
    if maker is None or rows is None:
        return None
    first, behind = rows
    start, stop = bounds
    if first <= start and stop <= behind:
        return maker.input[2], 0, (start - first, stop - first), moves
    if first < stop and start < behind:
        return None
    before = _part(maker.input[0], 0, bounds, parts)  # which may have been written over, too
    return (maker.input[0], 0, bounds, moves) if before is None else (*before[:3], [*before[3], *moves])


def _rows_written(node: onnx.NodeProto, parts: Parts) -> _Bounds | None:
    """The rows of the first axis that are written, where they are whole, and neighbours in their order."""
    places = parts.tensor(node.input[1])
    if places is None or places.ndim != 2 or places.shape[1] != 1 or not places.size:
        return None
    if attributes_of(node).get("reduction", b"none") != b"none":
        return None
    first = int(places[0, 0])
    if not np.array_equal(places[:, 0], first + np.arange(len(places))):
        return None
    return first, first + len(places)
