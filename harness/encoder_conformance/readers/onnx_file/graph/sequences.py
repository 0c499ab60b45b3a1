"""Lowers a value that is split into a sequence, of which parts are taken, to slices: so an exporter that simplifies
nothing writes `chunk` and `split`."""

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, input_at
from encoder_conformance.readers.onnx_file.graph.parts import Parts

SEQUENCES = frozenset(("SplitToSequence", "SequenceAt"))


def split_to_sequence(node: onnx.NodeProto, parts: Parts) -> bool:
    """Nothing takes its place where each part that is taken is a slice."""
    takers = [each for each in parts.graph.node if node.output[0] in each.input]
    return all(each.op_type == "SequenceAt" and _bounds(each, node, parts) is not None for each in takers)


def sequence_at(node: onnx.NodeProto, parts: Parts) -> bool:
    """The part of this number, as a slice of what was split."""
    split = next((each for each in parts.graph.node if node.input[0] in each.output), None)
    if split is None or split.op_type != "SplitToSequence" or not split_to_sequence(split, parts):
        return False
    bounds = _bounds(node, split, parts)
    assert bounds is not None
    out, axis = node.output[0], int(attributes_of(split).get("axis", 0))
    given = zip(("from", "to", "along"), (*bounds, axis), strict=True)
    ends = [parts.constant(f"{out}/{name}", np.array([number], np.int64)) for name, number in given]
    parts.node("Slice", [split.input[0], *ends], out, name=node.name)
    return True


def _bounds(node: onnx.NodeProto, split: onnx.NodeProto, parts: Parts) -> tuple[int, int] | None:
    """Where the part begins and ends; None where the graph does not say so, or it loses its axis."""
    sizes, number = parts.tensor(input_at(split, 1)), parts.tensor(node.input[1])
    if sizes is None or number is None or int(number) < 0:
        return None
    if not sizes.ndim:
        return int(sizes) * int(number), int(sizes) * (int(number) + 1)
    ends = np.cumsum(sizes).tolist()
    return (int(ends[int(number)] - sizes[int(number)]), int(ends[int(number)])) if number < len(ends) else None
