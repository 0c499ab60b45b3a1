"""Lowers ONNX Runtime's fused operators to ONNX's own, so that the graph can be traced.

Only the traced copy changes; the file that runs stays as it is. `integers` has what computes with integers.
"""

from collections.abc import Callable
from math import sqrt

import numpy as np
import onnx
from onnx import helper

from encoder_conformance.impls.onnx_file.graph.fused_attention import (
    attention,
    multi_head_attention,
    quantised_attention,
)
from encoder_conformance.impls.onnx_file.graph.fused_integers import integer_operator, packed_product, real_product
from encoder_conformance.impls.onnx_file.graph.integers import Integers
from encoder_conformance.impls.onnx_file.graph.nodes import STANDARD, replace_nodes
from encoder_conformance.impls.onnx_file.graph.parts import Parts

MICROSOFT = "com.microsoft"
FUSED = frozenset({"QLinearMatMul"})
"""ONNX's own operators that are lowered, too."""
Nodes = list[onnx.NodeProto]


def lower(model: onnx.ModelProto) -> dict[str, Integers]:
    """Lowers in place; Constant nodes are initializers already. Gives how weights were stored that were packed."""
    parts, kept, packed = Parts(model.graph, _opset(model)), Nodes(), dict[str, Integers]()
    for node in model.graph.node:
        lowering = LOWERINGS.get(node.op_type) if node.domain == MICROSOFT else None
        if node.op_type == "MatMulNBits":
            lowered = packed_product(node, parts, packed)
        elif node.op_type in FUSED:
            lowered = integer_operator(node, parts)
        else:
            lowered = lowering(node, parts) if lowering else None
        kept += [node] if lowered is None else lowered
    replace_nodes(model.graph, kept)
    return packed


def lower_embeddings(model: onnx.ModelProto) -> None:
    """Lowers EmbedLayerNormalization alone, in place."""
    parts, kept = Parts(model.graph, _opset(model)), Nodes()
    for node in model.graph.node:
        kept += _embed_norm(node, parts) if node.op_type == "EmbedLayerNormalization" else [node]
    replace_nodes(model.graph, kept)


def _opset(model: onnx.ModelProto) -> int:
    """The opset of ONNX's own operators."""
    return next((entry.version for entry in model.opset_import if entry.domain in STANDARD), 1)


def _attribute(node: onnx.NodeProto, name: str, default: float) -> float:
    return next((attribute.f for attribute in node.attribute if attribute.name == name), default)


def _skip_norm(node: onnx.NodeProto, parts: Parts) -> Nodes:
    """(x + skip + bias) normed; the sum is the fourth output."""
    inputs, simplified = list(node.input), "Simplified" in node.op_type
    if _is_skipped(inputs[0], parts):
        inputs[:2] = inputs[1], inputs[0]
    gain, *rest = inputs[2:]
    shift, bias = ("", *rest, "")[:2] if simplified else (*rest, "", "")[:2]
    out = node.output[0]
    total = node.output[3] if len(node.output) > 3 and node.output[3] else f"{out}/sum"
    skip = f"{out}/biased" if bias else inputs[1]
    nodes = [helper.make_node("Add", [inputs[0], bias], [skip])] if bias else []
    # The bias is of the linear map that comes first; what is skipped is the other.
    pair = [skip, inputs[1]] if bias else [inputs[0], inputs[1]]
    kind = "RMSNormalization" if simplified else "LayerNormalization"
    epsilon = _attribute(node, "epsilon", 1e-5)
    nodes.append(helper.make_node("Add", pair, [total]))
    norm = helper.make_node(
        kind, [n for n in (total, gain, shift) if n], [out], name=node.name, axis=-1, epsilon=epsilon
    )
    return [*nodes, norm]


def _is_skipped(name: str, parts: Parts) -> bool:
    """Whether a summand is an input or a norm's, and no linear map's: ONNX Runtime writes the two in either order."""
    if any(info.name == name for info in parts.graph.input):
        return True
    maker = next((node for node in parts.graph.node if name in node.output), None)
    return maker is not None and "Norm" in maker.op_type


def _gelu(node: onnx.NodeProto, parts: Parts) -> Nodes:
    """BiasGelu, FastGelu (by tanh) and Gelu, whose bias is optional, in the operators of every opset."""
    out, x = node.output[0], node.input[0]
    nodes = []
    if len(node.input) > 1 and node.input[1]:
        x = f"{out}/biased"
        nodes.append(helper.make_node("Add", list(node.input[:2]), [x]))
    half, one = parts.number(f"{out}/half", 0.5), parts.number(f"{out}/one", 1.0)
    if node.op_type == "FastGelu":
        cubic, scale = parts.number(f"{out}/c", 0.044715), parts.number(f"{out}/s", sqrt(2 / np.pi))
        three = parts.number(f"{out}/three", 3.0)
        steps = [("Pow", [x, three]), ("Mul", ["", cubic]), ("Add", ["", x]), ("Mul", ["", scale]), ("Tanh", [""])]
    else:
        steps = [("Mul", [x, parts.number(f"{out}/r", sqrt(0.5))]), ("Erf", [""])]
    steps += [("Add", ["", one]), ("Mul", ["", x]), ("Mul", ["", half])]
    return [*nodes, *_chain(steps, out)]


def _quick_gelu(node: onnx.NodeProto, parts: Parts) -> Nodes:
    """x · sigmoid(alpha · x): SiLU, where alpha is 1."""
    out, x = node.output[0], node.input[0]
    alpha = parts.number(f"{out}/alpha", _attribute(node, "alpha", 1.702))
    return _chain([("Mul", [x, alpha]), ("Sigmoid", [""]), ("Mul", ["", x])], out)


def _chain(steps: list[tuple[str, list[str]]], out: str) -> Nodes:
    """Nodes in sequence; the input "" is the output of the node before."""
    nodes: Nodes = []
    for number, (op, inputs) in enumerate(steps):
        name = out if number == len(steps) - 1 else f"{out}/{number}"
        nodes.append(helper.make_node(op, [g or nodes[-1].output[0] for g in inputs], [name]))
    return nodes


def _embed_norm(node: onnx.NodeProto, parts: Parts) -> Nodes:
    """Words, positions and token types, summed and normed; the count of the mask's ones is the second output."""
    ids, types, words, positions, kinds, gain, shift, mask, places = (*node.input, *[""] * 9)[:9]
    out = node.output[0]
    total = node.output[2] if len(node.output) > 2 and node.output[2] else f"{out}/sum"
    nodes = [helper.make_node("Gather", [words, ids], [f"{out}/words"], axis=0)]
    if not places:
        one, zero = (parts.constant(f"{out}/{n}", np.array(n)) for n in (1, 0))
        places = f"{out}/places"
        nodes += [
            helper.make_node("Shape", [ids], [f"{out}/shape"]),
            helper.make_node("Gather", [f"{out}/shape", one], [f"{out}/length"], axis=0),
            helper.make_node("Range", [zero, f"{out}/length", one], [places]),
        ]
    nodes.append(helper.make_node("Gather", [positions, places], [f"{out}/positions"], axis=0))
    placed = f"{out}/placed" if kinds else total
    nodes.append(helper.make_node("Add", [f"{out}/words", f"{out}/positions"], [placed]))
    if kinds:
        nodes.append(helper.make_node("Gather", [kinds, types], [f"{out}/types"], axis=0))
        nodes.append(helper.make_node("Add", [placed, f"{out}/types"], [total]))
    epsilon = _attribute(node, "epsilon", 1e-12)
    nodes.append(
        helper.make_node("LayerNormalization", [total, gain, shift], [out], name=node.name, axis=-1, epsilon=epsilon)
    )
    if len(node.output) > 1 and node.output[1]:
        nodes += _counted(parts, node.output[1], mask, ids)
    return nodes


def _counted(parts: Parts, out: str, mask: str, ids: str) -> Nodes:
    """The number of ones of the mask in each item, in int32, which Attention takes; 0 without a mask."""
    flags, count = f"{out}/flags", f"{out}/count"
    narrowed = helper.make_node("Cast", [count], [out], to=onnx.TensorProto.INT32)
    source = mask or ids
    nodes = [helper.make_node("Cast", [source], [f"{out}/integers"], to=onnx.TensorProto.INT64)]
    if mask:
        nodes.append(helper.make_node("Identity", [f"{out}/integers"], [flags]))
    else:
        zero = parts.constant(f"{out}/zero", np.array(0))
        nodes.append(helper.make_node("Mul", [f"{out}/integers", zero], [flags]))
    if parts.opset < 13:
        return [*nodes, helper.make_node("ReduceSum", [flags], [count], axes=[1], keepdims=0), narrowed]
    axis = parts.constant(f"{out}/axis", np.array([1]))
    return [*nodes, helper.make_node("ReduceSum", [flags, axis], [count], keepdims=0), narrowed]


LOWERINGS: dict[str, Callable[[onnx.NodeProto, Parts], Nodes | None]] = {
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_norm,
    "BiasGelu": _gelu,
    "FastGelu": _gelu,
    "Gelu": _gelu,
    "QuickGelu": _quick_gelu,
    "EmbedLayerNormalization": _embed_norm,
    "Attention": attention,
    "MultiHeadAttention": multi_head_attention,
    "QAttention": quantised_attention,
    "MatMulIntegerToFloat": real_product,
    "DynamicQuantizeMatMul": real_product,
    "QLinearAdd": integer_operator,
    "QLinearMul": integer_operator,
}
