"""Lowers rows that are written into a tensor to those rows joined with the others, in their order: of one part after
the other until they are all of it, `halves[..., ::2] = …; halves[..., 1::2] = …`, or one of its own,
`q, k, v = qkv[0], qkv[1], qkv[2]; q *= scale`.
"""

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, leading_to
from encoder_conformance.readers.onnx_file.graph.parts import Parts
from encoder_conformance.spec.axes import Array

_WHOLE = b"none"
"""What an operator does with what stands there already: nothing."""
_HIDING = -100.0
"""Scores of less hide a key."""


def overwritten(node: onnx.NodeProto, parts: Parts) -> bool:
    """Of the last that is written: the rows of all. Of the others: what they are written into, which nothing takes."""
    written = _written_into(node, parts)
    if written is None:
        return _filled(node, parts)
    base, writers = written
    if (rows := _rows_of(base, writers, parts)) is not None:
        _join(node, rows, writers, parts)
        return True
    if not _is_written_on(node, parts):
        return False
    parts.node("Identity", [base], node.output[0])
    return True


def _filled(node: onnx.NodeProto, parts: Parts) -> bool:
    """Fixed places that one number is written to which hides, as by `scores[:, :, i, j] = -inf`: that number where a
    mask says so."""
    data, places, written = node.input
    held, numbers, size = parts.tensor(places), parts.tensor(written), parts.sizes(data)
    if held is None or numbers is None or size is None or not held.size:
        return False
    if attributes_of(node).get("reduction", _WHOLE) != _WHOLE:
        return False
    number = numbers.flat[0]
    if number > _HIDING or (numbers != number).any():
        return False
    out, axes = node.output[0], held.shape[-1]
    mask = np.zeros([*size[:axes], *(1 for _ in size[axes:])], np.bool_)
    mask[tuple(np.moveaxis(held, -1, 0))] = True
    named = {"places": mask, "number": number.reshape(())}
    constants = [parts.constant(f"{out}/{name}", value) for name, value in named.items()]
    parts.node("Where", [*constants, data], out, name=node.name)
    return True


def _is_written_on(node: onnx.NodeProto, parts: Parts) -> bool:
    """Whether others write into its result, which nothing else takes, until all rows are written."""
    following = _written_over(node, parts)
    written = None if following is None else _written_into(following, parts)
    if following is None or written is None:
        return False
    return _rows_of(*written, parts) is not None or _is_written_on(following, parts)


def _written_into(node: onnx.NodeProto, parts: Parts) -> tuple[str, list[onnx.NodeProto]] | None:
    """The constant that was written into first, and all that write, to this one; None where it is none."""
    writers, data = list[onnx.NodeProto](), node.output[0]
    while data not in parts.dims:
        maker = next((each for each in parts.graph.node if data in each.output), None)
        if maker is None or maker.op_type not in ("ScatterND", "Identity"):
            return None
        if maker.op_type == "ScatterND":
            writers.insert(0, maker)
        data = maker.input[0]
    return data, writers


def _rows_of(base: str, writers: list[onnx.NodeProto], parts: Parts) -> Array | None:
    """The place of each row of the result among the rows that were written, one part behind the other; None where
    they are not known, or one is not written."""
    rows, before = np.full(parts.dims[base][:1], -1, np.int64), 0
    for writer in writers:
        places = parts.tensor(writer.input[1])
        by_row = places is not None and places.ndim == 2 and places.shape[1] == 1
        if places is None or not by_row or attributes_of(writer).get("reduction", _WHOLE) != _WHOLE:
            return None
        rows[places[:, 0]] = before + np.arange(len(places))
        before += len(places)
    return rows if rows.size and rows.min() >= 0 else None


def _join(node: onnx.NodeProto, rows: Array, writers: list[onnx.NodeProto], parts: Parts) -> None:
    out = node.output[0]
    order = parts.constant(f"{out}/order", rows)
    joined = parts.node("Concat", [each.input[2] for each in writers], f"{out}/joined", axis=0)
    parts.node("Gather", [joined, order], out, name=node.name, axis=0)


def _written_over(node: onnx.NodeProto, parts: Parts) -> onnx.NodeProto | None:
    """The one that writes into its result, where nothing else takes that."""
    name = node.output[0]
    while True:
        takers = [each for each in parts.graph.node if name in each.input]
        if len(takers) != 1 or takers[0].input[0] != name:
            return None
        if takers[0].op_type != "Identity":
            return takers[0] if takers[0].op_type == "ScatterND" else None
        name = takers[0].output[0]


def one_overwritten(node: onnx.NodeProto, parts: Parts) -> bool:
    """One place along an axis, the same of all others: what stands before it, what is written, what stands behind."""
    data, places, written = node.input
    given, held, size = attributes_of(node), parts.tensor(places), parts.sizes(data)
    axis = int(given.get("axis", 0))
    if held is None or size is None or given.get("reduction", _WHOLE) != _WHOLE or not held.size:
        return False
    if not _is_of_inputs(written, parts):  # as −∞ for a key that is hidden
        return False
    place, whole = int(held.flat[0]), [each for at, each in enumerate(size) if at != axis % len(size)]
    others = [each for at, each in enumerate(held.shape) if at != axis % len(size)]
    if held.shape[axis] != 1 or others != whole or (held != place).any() or not 0 <= place < size[axis]:
        return False
    out, ends = node.output[0], {"before": (0, place), "behind": (place + 1, size[axis])}
    joined = {name: _slice(data, axis, between, f"{out}/{name}", parts) for name, between in ends.items()}
    parts.node("Concat", [joined["before"], written, joined["behind"]], out, name=node.name, axis=axis)
    return True


def _is_of_inputs(name: str, parts: Parts) -> bool:
    producers = {output: node for node in parts.graph.node for output in node.output}
    return any(info.name not in parts.dims for info in parts.graph.input if info.name in leading_to([name], producers))


def _slice(data: str, axis: int, between: tuple[int, int], out: str, parts: Parts) -> str:
    """The places between these two along an axis; "" where there is none."""
    if between[0] == between[1]:
        return ""
    numbers = {"from": between[0], "to": between[1], "along": axis}
    ends = [parts.constant(f"{out}/{name}", np.array([number], np.int64)) for name, number in numbers.items()]
    return parts.node("Slice", [data, *ends], out)
