"""Mends what is safe and mechanical, in a new file: the order of nodes, the names of free axes, stale shapes."""

from pathlib import Path

import onnx

from encoder_conformance.readers.onnx_file.inspection import Inspection
from encoder_conformance.readers.onnx_file.reading.loading import load
from encoder_conformance.readers.onnx_file.reading.node_order import first_problem, sort_nodes

_NAMES = {"B": "batch", "S": "sequence"}
_OF_LAYOUT = {"BSD": "BS", "SBD": "SB", "SD": "S"}


def write_fixed(path: Path, new: Path, inspection: Inspection) -> tuple[str, ...]:
    """Says what was mended, in `new`, with all external data inside; nothing is written where nothing is to be mended.

    No number of the file changes, and no node is another.
    """
    if inspection.graph is None:
        return ()
    model = load(path)[0]
    done = []
    if first_problem(model):
        sort_nodes(model)
        done.append("its nodes are in order")
    if inspection.findings.has("stated-shape-wrong"):
        del model.graph.value_info[:]
        done.append("shapes that contradicted its operators are gone")
    named = _name_axes(model, inspection)
    if named:
        done.append(f"axes are named: {', '.join(named)}")
    if done:
        onnx.save(model, new)
    return tuple(done)


def _name_axes(model: onnx.ModelProto, inspection: Inspection) -> list[str]:
    """Names the free axes of x, the output and the masks as runs show them; of a whole model none are known."""
    semantics = inspection.semantics
    if semantics is None or inspection.cut is not None:
        return []
    letters = {semantics.x.name: _OF_LAYOUT[semantics.layout], semantics.output.name: _OF_LAYOUT[semantics.layout]}
    letters |= {mask.name: mask.axes for mask in semantics.masks if mask.polarity}
    changed = []
    for info in (*model.graph.input, *model.graph.output):
        dims = info.type.tensor_type.shape.dim
        for dim, letter in zip(dims, letters.get(info.name, ""), strict=False):
            name = _NAMES.get(letter)
            if name and not dim.HasField("dim_value") and dim.dim_param != name:
                dim.dim_param = name
                changed.append(f"{info.name!r} {name}")
    return changed
