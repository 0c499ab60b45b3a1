"""Lowers a convolution of kernel 1, which is a linear map of each position's channels, to that map."""

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, input_at
from encoder_conformance.readers.onnx_file.graph.parts import Parts


def pointwise_convolution(node: onnx.NodeProto, parts: Parts) -> bool:
    """x [batch, channels, …] with its channels last, times the weight [F, C, 1, …] as a matrix, and back."""
    weight, attributes = node.input[1], attributes_of(node)
    shape = parts.dims.get(weight, ())
    steps = (*attributes.get("strides", ()), attributes.get("group", 1), *shape[2:])
    if len(shape) < 3 or any(each != 1 for each in steps) or any(attributes.get("pads", ())):
        return False
    out, axes = node.output[0], len(shape)
    matrix = parts.constant(f"{out}/matrix", np.array(shape[:2], np.int64))
    turned = parts.node(
        "Transpose", [parts.node("Reshape", [weight, matrix], f"{out}/flat")], f"{out}/weight", perm=[1, 0]
    )
    last = parts.node("Transpose", [node.input[0]], f"{out}/x", perm=[0, *range(2, axes), 1])
    mapped = parts.node("MatMul", [last, turned], f"{out}/product", name=node.name)
    if bias := input_at(node, 2):
        mapped = parts.node("Add", [mapped, bias], f"{out}/biased")
    parts.node("Transpose", [mapped], out, perm=[0, axes - 1, *range(1, axes - 1)])
    return True
