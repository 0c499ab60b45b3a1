"""Checks the numbers that a file stores: weights that are no number, and weights that no output depends on."""

import numpy as np

from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import leading_to
from encoder_conformance.spec.axes import Array

SHOWN = 3
HINT = "train or export it again; until then nothing that it computes can be judged"


def check_weights(graph: Graph, findings: Findings) -> bool:
    """Whether every weight is a finite number. The others are errors of phase `layer`, each named."""
    finite = True
    for name, value in graph.constants.items():
        if problem := _problem(value):
            finite = False
            message = f"the weight {name!r} {list(value.shape)} holds {problem}"
            findings.error("layer", "weight-not-finite", message, HINT, name=name, shape=value.shape)
    _check_unused(graph, findings)
    return finite


def _problem(value: Array) -> str:
    """The places of a tensor that hold no finite number; "" where none does. A mask of 0 and -inf is made so."""
    if value.dtype.kind not in "fV" or value.size < 2:
        return ""
    numbers = value.astype(np.float32)
    nan, infinite = np.isnan(numbers), np.isinf(numbers)
    if infinite.any() and not nan.any() and np.isin(numbers, (0.0, -np.inf)).all():
        return ""
    for found, what in ((nan, "NaN"), (infinite, "infinity")):
        if found.any():
            places = [list(map(int, place)) for place in np.argwhere(found)[:SHOWN]]
            more = " …" if found.sum() > SHOWN else ""
            return f"{what} in {int(found.sum())} of {value.size} places: {', '.join(map(str, places))}{more}"
    return ""


def _check_unused(graph: Graph, findings: Findings) -> None:
    """Stored vectors and matrices that no output of the file itself is computed from."""
    outputs = [info.name for info in graph.original.graph.output]
    reached = leading_to(outputs, {name: node for node in graph.original.graph.node for name in node.output})
    for name, value in graph.constants.items():
        if name not in reached and name in graph.original_initializers and value.dtype.kind in "fV" and value.size > 1:
            message = f"{name!r} {list(value.shape)} is stored, and no output depends on it"
            hint = "was the node that takes it lost, a bias for one?"
            findings.warning("layer", "parameter-unused", message, hint, name=name, shape=value.shape)
