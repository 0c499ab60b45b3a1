"""A file whose output is no number, whatever it is given: the node that is the first to give none."""

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError, ModelRunner
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import node_label
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics


def say_lost_numbers(graph: Graph, semantics: InputSemantics, runner: ModelRunner, findings: Findings) -> None:
    """An error, with the first node in the order of a run whose value is NaN, or else infinite."""
    node = _first_lost(graph, semantics, runner)
    by = "" if node is None else f"; {node_label(node)} is the first to give none"
    message = f"its output is NaN or infinite, whatever it is given{by}"
    hint = "a number that its format does not hold (float16 ends at 65504), and 0 times it or it less itself"
    findings.error("layer", "output-not-finite", message, hint, node=None if node is None else node.name)


def _first_lost(graph: Graph, semantics: InputSemantics, runner: ModelRunner) -> onnx.NodeProto | None:
    x = np.random.default_rng(0).standard_normal(semantics.x_shape(semantics.B, semantics.S))
    masks = {mask.name: np.ones(mask.shape, np.dtype(mask.dtype)) for mask in semantics.masks}
    try:
        values = runner.trace({semantics.x.name: x.astype(np.dtype(semantics.x.dtype)), **masks})
    except ExecutionError:
        return None
    made = [(node, values[name]) for node in graph.nodes for name in node.output if name in values]
    numbers = [(node, value.astype(np.float64)) for node, value in made if value.dtype.kind not in "biuOSU"]
    lost = [node for node, value in numbers if np.isnan(value).any()]
    return next(iter(lost), None) or next((node for node, value in numbers if np.isinf(value).all()), None)
