"""Lowers ONNX Runtime's RotaryEmbedding to the sums of products that it computes.

The operator is that of com.microsoft, as `docs/ContribOperators.md` of microsoft/onnxruntime has it: rows of two tables
[positions, w] by position, 2 · w features of each head turned, and those after them left as they are.
"""

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, input_at
from encoder_conformance.readers.onnx_file.graph.parts import Parts

_TO_THE_END = np.iinfo(np.int64).max


def rotary_embedding(node: onnx.NodeProto, parts: Parts) -> bool:
    """False where its inputs are packed, or nothing says how many features it turns."""
    attributes, out = attributes_of(node), node.output[0]
    x, ids, cos, sin = (input_at(node, place) for place in range(4))
    dims = parts.dims.get(cos, ())
    if attributes.get("is_packed_batching") or attributes.get("scale", 1.0) != 1.0 or len(dims) != 2:
        return False
    width, flat = dims[1], _is_flat(x, parts)
    if flat:
        heads = int(attributes.get("num_heads", 0))
        split = [0, 0, heads, -1] if heads else [0, 0, -1, 2 * width]
        apart = parts.node("Reshape", [x, parts.constant(f"{out}/split", np.array(split))], f"{out}/apart")
        x = parts.node("Transpose", [apart], f"{out}/heads", perm=[0, 2, 1, 3])
    turned = _turned(x, _rows(ids, x, [cos, sin], out, parts), width, bool(attributes.get("interleaved")), parts, out)
    if flat:
        back = parts.node("Transpose", [turned], f"{out}/back", perm=[0, 2, 1, 3])
        turned = parts.node("Reshape", [back, parts.constant(f"{out}/join", np.array([0, 0, -1]))], f"{out}/joined")
    parts.node("Identity", [turned], out)
    return True


def _is_flat(name: str, parts: Parts) -> bool:
    """Whether a value is [B, S, H · d], and not [B, H, S, d]; where no shape says it, by the node that makes it."""
    rank = parts.rank(name)
    if rank is not None:
        return rank == 3
    maker = next((node for node in parts.graph.node if name in node.output), None)
    return maker is None or maker.op_type != "Transpose"


def _rows(ids: str, x: str, tables: list[str], out: str, parts: Parts) -> list[str]:
    """The rows of each table, [B, 1, S, w] or [S, w], by positions [B, S], or from one position on."""
    one = parts.rank(ids) == 1
    if one:
        ids = parts.node("Add", [ids, parts.places(x, 2, f"{out}/places")], f"{out}/positions")
    rows = [
        parts.node("Gather", [table, ids], f"{out}/{part}", axis=0)
        for part, table in zip(("cos", "sin"), tables, strict=True)
    ]
    return rows if one else [parts.along("Unsqueeze", each, f"{each}/heads", 1) for each in rows]


def _turned(x: str, rows: list[str], width: int, interleaved: bool, parts: Parts, out: str) -> str:
    """[B, H, S, d] with its first 2 · `width` features turned, pairs in halves or of neighbours."""
    step, ends = (2, (0, 1)) if interleaved else (1, (0, width))
    last = 2 * width
    one, other = (
        _sliced(x, start, min(last, start + width * step), step, f"{out}/part{number}", parts)
        for number, start in enumerate(ends)
    )
    product = {
        f"{side}{table}": parts.node("Mul", [value, row], f"{out}/{side}{table}")
        for side, value in (("one", one), ("other", other))
        for table, row in zip(("cos", "sin"), rows, strict=True)
    }
    first = parts.node("Sub", [product["onecos"], product["othersin"]], f"{out}/first")
    second = parts.node("Add", [product["onesin"], product["othercos"]], f"{out}/second")
    if interleaved:
        pairs = [parts.along("Unsqueeze", each, f"{each}/last", -1) for each in (first, second)]
        beside = parts.node("Concat", pairs, f"{out}/pairs", axis=-1)
        shape = parts.constant(f"{out}/shape", np.array([0, 0, 0, last]))
        made = [parts.node("Reshape", [beside, shape], f"{out}/turned")]
    else:
        made = [first, second]
    rest = _sliced(x, last, _TO_THE_END, 1, f"{out}/rest", parts)
    return parts.node("Concat", [*made, rest], f"{out}/whole", axis=-1)


def _sliced(x: str, start: int, end: int, step: int, out: str, parts: Parts) -> str:
    """The features of x from `start` to `end`."""
    numbers = {"start": start, "end": end, "axis": -1, "step": step}
    given = [parts.constant(f"{out}/{name}", np.array([number])) for name, number in numbers.items()]
    return parts.node("Slice", [x, *given], out)
