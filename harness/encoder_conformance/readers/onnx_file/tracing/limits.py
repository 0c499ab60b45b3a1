"""Limits that numbers are kept within: what a probe of small numbers does not see, and large ones are changed by."""

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of
from encoder_conformance.readers.onnx_file.tracing.expressions import Constant, UnsupportedPattern
from encoder_conformance.readers.onnx_file.tracing.value_table import ValueTable

_NO_LIMIT = 1e4
"""What is kept within larger ones is kept from the ends of half precision, which no layer comes near to."""


def refuse_limits(table: ValueTable, node: onnx.NodeProto) -> None:
    """Raises UnsupportedPattern for a node that cuts off what is too large, or too far below 0. A bound of 0, as of a
    ReLU, and a small one below, as of a sum that is divided by, are seen by their values."""
    least, most = _bounds(table, node)
    if most < 0 or (least == 0 and most < _NO_LIMIT):
        return
    above, below = most < _NO_LIMIT, -_NO_LIMIT < least < 0
    if above or below:
        said = f"{least:g} … {most:g}" if above and below else f"at most {most:g}" if above else f"at least {least:g}"
        raise UnsupportedPattern(said, "limited")


def _bounds(table: ValueTable, node: onnx.NodeProto) -> tuple[float, float]:
    """The least and the most that a node's output may be, where one number says so."""
    attributes = attributes_of(node)
    least, most = (float(attributes.get(name, bound)) for name, bound in (("min", -np.inf), ("max", np.inf)))
    if node.op_type == "Clip":
        given = [*node.input[1:], "", ""][:2]
        return _one(table, given[0], least), _one(table, given[1], most)
    constants = [name for name in node.input if isinstance(table.value(name), Constant)]
    if len(constants) == 1 and node.op_type in ("Min", "Max"):
        bound = _one(table, constants[0], np.nan)
        return (least, bound) if node.op_type == "Min" else (bound, most)
    return least, most


def _one(table: ValueTable, name: str, otherwise: float) -> float:
    """The one number of a constant; `otherwise` for none, and for several."""
    value = table.value(name) if name else None
    return float(value.value.reshape(-1)[0]) if isinstance(value, Constant) and value.value.size == 1 else otherwise
