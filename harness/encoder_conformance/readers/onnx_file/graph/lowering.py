"""Lowers ONNX Runtime's fused operators to ONNX's own, so that the graph can be traced.

Only the traced copy changes; the file that runs stays as it is. `integers` has what computes with integers.
"""

from collections.abc import Callable
from math import sqrt

import numpy as np
import onnx

from encoder_conformance.readers.onnx_file.graph.fused_attention import (
    attention,
    multi_head_attention,
    quantised_attention,
)
from encoder_conformance.readers.onnx_file.graph.fused_integers import integer_operator, packed_product, real_product
from encoder_conformance.readers.onnx_file.graph.integers import Integers
from encoder_conformance.readers.onnx_file.graph.nodes import STANDARD, attributes_of, input_at, replace_nodes
from encoder_conformance.readers.onnx_file.graph.parts import Parts

MICROSOFT = "com.microsoft"
FUSED = frozenset({"QLinearMatMul"})
"""ONNX's own operators that are lowered, too."""
Lowering = Callable[[onnx.NodeProto, Parts], bool]
"""Adds the nodes that replace one, and says whether it did."""


def is_fused(node: onnx.NodeProto) -> bool:
    return node.domain == MICROSOFT or node.op_type in FUSED


def is_embedding(node: onnx.NodeProto) -> bool:
    return node.op_type == "EmbedLayerNormalization"


def lower(model: onnx.ModelProto, is_wanted: Callable[[onnx.NodeProto], bool] = is_fused) -> dict[str, Integers]:
    """Lowers in place; Constant nodes are initializers already. Gives how weights were stored that were packed."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in STANDARD), 1)
    parts, kept = Parts(model.graph, opset), list[onnx.NodeProto]()
    for node in model.graph.node:
        lowering, parts.nodes = LOWERINGS.get(node.op_type) if is_wanted(node) else None, []
        kept += parts.nodes if lowering and lowering(node, parts) else [node]
    replace_nodes(model.graph, kept)
    return parts.packed


def _skip_norm(node: onnx.NodeProto, parts: Parts) -> bool:
    """(x + skip + bias) normed; the sum is the fourth output."""
    inputs, simplified = list(node.input), "Simplified" in node.op_type
    if _is_skipped(inputs[0], parts):
        inputs[:2] = inputs[1], inputs[0]
    x, skip, gain, *rest = inputs
    shift, bias = ("", *rest, "")[:2] if simplified else (*rest, "", "")[:2]
    out = node.output[0]
    total = node.output[3] if len(node.output) > 3 and node.output[3] else f"{out}/sum"
    # The bias is of the linear map that comes first; what is skipped is the other.
    pair = [parts.node("Add", [x, bias], f"{out}/biased"), skip] if bias else [x, skip]
    parts.node("Add", pair, total)
    kind, epsilon = "RMSNormalization" if simplified else "LayerNormalization", attributes_of(node).get("epsilon", 1e-5)
    parts.node(kind, [total, gain, shift], out, name=node.name, axis=-1, epsilon=epsilon)
    return True


def _is_skipped(name: str, parts: Parts) -> bool:
    """Whether a summand is an input or a norm's, and no linear map's: ONNX Runtime writes the two in either order."""
    if any(info.name == name for info in parts.graph.input):
        return True
    maker = next((node for node in parts.graph.node if name in node.output), None)
    return maker is not None and "Norm" in maker.op_type


def _gelu(node: onnx.NodeProto, parts: Parts) -> bool:
    """BiasGelu, FastGelu (by tanh) and Gelu, whose bias is optional, in the operators of every opset."""
    out, x = node.output[0], node.input[0]
    if input_at(node, 1):
        x = parts.node("Add", node.input[:2], f"{out}/biased")
    half, one = parts.number(f"{out}/half", 0.5), parts.number(f"{out}/one", 1.0)
    if node.op_type == "FastGelu":
        cubic, scale = parts.number(f"{out}/c", 0.044715), parts.number(f"{out}/s", sqrt(2 / np.pi))
        three = parts.number(f"{out}/three", 3.0)
        steps = [("Pow", [x, three]), ("Mul", ["", cubic]), ("Add", ["", x]), ("Mul", ["", scale]), ("Tanh", [""])]
    else:
        steps = [("Mul", [x, parts.number(f"{out}/r", sqrt(0.5))]), ("Erf", [""])]
    return _chain(parts, [*steps, ("Add", ["", one]), ("Mul", ["", x]), ("Mul", ["", half])], out)


def _quick_gelu(node: onnx.NodeProto, parts: Parts) -> bool:
    """x · sigmoid(alpha · x): SiLU, where alpha is 1."""
    out, x = node.output[0], node.input[0]
    alpha = parts.number(f"{out}/alpha", attributes_of(node).get("alpha", 1.702))
    return _chain(parts, [("Mul", [x, alpha]), ("Sigmoid", [""]), ("Mul", ["", x])], out)


def _chain(parts: Parts, steps: list[tuple[str, list[str]]], out: str) -> bool:
    """Nodes in sequence; the input "" is the output of the node before."""
    last = ""
    for number, (op, inputs) in enumerate(steps):
        name = out if number == len(steps) - 1 else f"{out}/{number}"
        last = parts.node(op, [each or last for each in inputs], name)
    return True


def _embed_norm(node: onnx.NodeProto, parts: Parts) -> bool:
    """Words, positions and token types, summed and normed; the count of the mask's ones is the second output."""
    ids, types, words, positions, kinds, gain, shift, mask, places = (*node.input, *[""] * 9)[:9]
    out = node.output[0]
    total = node.output[2] if len(node.output) > 2 and node.output[2] else f"{out}/sum"
    word = parts.node("Gather", [words, ids], f"{out}/words", axis=0)
    if not places:
        one, zero = (parts.constant(f"{out}/{n}", np.array(n)) for n in (1, 0))
        shape = parts.node("Shape", [ids], f"{out}/shape")
        length = parts.node("Gather", [shape, one], f"{out}/length", axis=0)
        places = parts.node("Range", [zero, length, one], f"{out}/places")
    position = parts.node("Gather", [positions, places], f"{out}/positions", axis=0)
    placed = parts.node("Add", [word, position], f"{out}/placed" if kinds else total)
    if kinds:
        kind = parts.node("Gather", [kinds, types], f"{out}/types", axis=0)
        parts.node("Add", [placed, kind], total)
    epsilon = attributes_of(node).get("epsilon", 1e-12)
    parts.node("LayerNormalization", [total, gain, shift], out, name=node.name, axis=-1, epsilon=epsilon)
    if len(node.output) > 1 and node.output[1]:
        _count_ones(parts, node.output[1], mask, ids)
    return True


def _count_ones(parts: Parts, out: str, mask: str, ids: str) -> None:
    """The number of ones of the mask in each item, in int32, which Attention takes; 0 without a mask."""
    integers = parts.node("Cast", [mask or ids], f"{out}/integers", to=onnx.TensorProto.INT64)
    if mask:
        flags = parts.node("Identity", [integers], f"{out}/flags")
    else:
        flags = parts.node("Mul", [integers, parts.constant(f"{out}/zero", np.array(0))], f"{out}/flags")
    if parts.opset < 13:
        count = parts.node("ReduceSum", [flags], f"{out}/count", axes=[1], keepdims=0)
    else:
        axis = parts.constant(f"{out}/axis", np.array([1]))
        count = parts.node("ReduceSum", [flags, axis], f"{out}/count", keepdims=0)
    parts.node("Cast", [count], out, to=onnx.TensorProto.INT32)


LOWERINGS: dict[str, Lowering] = {
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_norm),
    **dict.fromkeys(("BiasGelu", "FastGelu", "Gelu"), _gelu),
    "QuickGelu": _quick_gelu,
    "EmbedLayerNormalization": _embed_norm,
    "Attention": attention,
    "MultiHeadAttention": multi_head_attention,
    "QAttention": quantised_attention,
    **dict.fromkeys(("MatMulIntegerToFloat", "DynamicQuantizeMatMul"), real_product),
    "MatMulNBits": packed_product,
    **dict.fromkeys(("QLinearMatMul", "QLinearAdd", "QLinearMul"), integer_operator),
}
