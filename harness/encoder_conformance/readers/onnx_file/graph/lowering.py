"""Lowers ONNX Runtime's fused operators and sequences to ONNX's plain ones, so that the graph can be traced.

Only the traced copy changes; the file that runs stays as it is. `integers` has what computes with integers.
"""

from collections.abc import Callable
from math import sqrt

import numpy as np
import onnx
from onnx import helper

from encoder_conformance.readers.onnx_file.graph.fused_attention import (
    attention,
    multi_head_attention,
    quantised_attention,
)
from encoder_conformance.readers.onnx_file.graph.integers import Integers
from encoder_conformance.readers.onnx_file.graph.nodes import STANDARD, attributes_of, input_at, replace_nodes
from encoder_conformance.readers.onnx_file.graph.overwriting import one_overwritten, overwritten
from encoder_conformance.readers.onnx_file.graph.overwritten_parts import CUTS, part_taken, writes_over
from encoder_conformance.readers.onnx_file.graph.parts import Parts
from encoder_conformance.readers.onnx_file.graph.rotary import rotary_embedding
from encoder_conformance.readers.onnx_file.graph.sequences import SEQUENCES, sequence_at, split_to_sequence
from encoder_conformance.spec.axes import Array

MICROSOFT = "com.microsoft"
FUSED = frozenset({"QLinearMatMul", "ScatterElements", "ScatterND", *SEQUENCES})
"""ONNX's own operators that are lowered, too."""
_SKIPPED = 1e-12
"""ε of SkipLayerNormalization and its kin where a node has none: ONNX Runtime's own, in docs/ContribOperators.md."""
Lowering = Callable[[onnx.NodeProto, Parts], bool]
"""Adds the nodes that replace one, and says whether it did."""


def is_fused(node: onnx.NodeProto) -> bool:
    return bool(node.domain == MICROSOFT or node.op_type in FUSED or is_pointwise(node))


def is_pointwise(node: onnx.NodeProto) -> bool:
    """Whether it is a convolution whose kernel is one position wide: a linear map of each position's channels."""
    return takes_one_position(node) and attributes_of(node).get("group", 1) == 1


def takes_one_position(node: onnx.NodeProto) -> bool:
    """The same, whose map may be one for each group of channels."""
    if node.op_type != "Conv" or node.domain not in STANDARD:
        return False
    given = attributes_of(node)
    ones = (*given.get("kernel_shape", (0,)), *given.get("strides", ()))
    return all(each == 1 for each in ones) and not any(given.get("pads", ()))


def is_embedding(node: onnx.NodeProto) -> bool:
    return bool(node.op_type == "EmbedLayerNormalization")


def lower(model: onnx.ModelProto, is_wanted: Callable[[onnx.NodeProto], bool] = is_fused) -> dict[str, Integers]:
    """Lowers in place; Constant nodes are initializers already. Gives how weights were stored that were packed."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in STANDARD), 1)
    parts, kept, cuts = Parts(model.graph, opset), list[onnx.NodeProto](), CUTS if writes_over(model.graph) else ()
    for node in model.graph.node:
        wanted = is_wanted(node) or node.op_type in cuts
        lowering, parts.nodes = LOWERINGS.get(node.op_type) if wanted else None, []
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
    kind, epsilon = (
        "RMSNormalization" if simplified else "LayerNormalization",
        attributes_of(node).get("epsilon", _SKIPPED),
    )
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
    places = places or parts.places(ids, 1, f"{out}/places")
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
    flags = parts.node("Cast", [mask or ids], f"{out}/flags", to=onnx.TensorProto.INT64)
    if not mask:
        flags = parts.node("Mul", [flags, parts.constant(f"{out}/zero", np.array(0))], f"{out}/none")
    count = parts.along("ReduceSum", flags, f"{out}/count", 1, keepdims=0)
    parts.node("Cast", [count], out, to=onnx.TensorProto.INT32)


def _packed_product(node: onnx.NodeProto, parts: Parts) -> bool:
    """MatMulNBits: a weight of 2 to 8 bits in blocks along K, each with its scale and zero point."""
    attributes = attributes_of(node)
    K, N, bits, block = (int(attributes[name]) for name in ("K", "N", "bits", "block_size"))
    held, scales = parts.tensor(node.input[1]), parts.tensor(node.input[2])
    if held is None or scales is None or bits not in (2, 4, 8) or input_at(node, 4):
        return False
    blocks = -(-K // block)
    whole = _unpacked(held.reshape(N, blocks, -1), bits)[:, :, :block].astype(np.float64)
    zeros = np.full((N, blocks), 2.0 ** (bits - 1))
    if input_at(node, 3):
        zeros_held = parts.tensor(node.input[3])
        if zeros_held is None:
            return False
        if zeros_held.dtype == np.uint8:
            zeros_held = _unpacked(zeros_held.reshape(N, -1), bits)[:, :blocks]
        zeros = zeros_held.reshape(N, blocks).astype(np.float64)
    steps = scales.reshape(N, blocks).astype(np.float64)
    real = ((whole - zeros[:, :, None]) * steps[:, :, None]).reshape(N, -1)[:, :K].T
    weight = parts.constant(f"{node.output[0]}/weight", np.ascontiguousarray(real).astype(scales.dtype))
    parts.packed[weight] = Integers(f"uint{bits}", float(np.abs(steps).max()))
    return parts.biased_product(node, [node.input[0], weight], input_at(node, 5))


def _unpacked(held: Array, bits: int) -> Array:
    """The last axis of bytes [..., n] as integers of so many bits, the lowest first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (held[..., None] >> shifts) & np.uint8(2**bits - 1)
    return parts.reshape(*held.shape[:-1], -1)


def _real_product(node: onnx.NodeProto, parts: Parts) -> bool:
    """MatMulIntegerToFloat and DynamicQuantizeMatMul: A, B, their scales and zero points, and a bias."""
    out = node.output[0]
    if node.op_type == "DynamicQuantizeMatMul":
        a = [f"{out}/{part}" for part in ("integers", "scale", "zero")]
        parts.nodes.append(helper.make_node("DynamicQuantizeLinear", [node.input[0]], a))
        b, bias = [node.input[1], node.input[2], input_at(node, 3)], input_at(node, 4)
    else:
        a, b = [node.input[0], node.input[2], input_at(node, 4)], [node.input[1], node.input[3], input_at(node, 5)]
        bias = input_at(node, 6)
    real = [parts.node("DequantizeLinear", a, f"{out}/a"), parts.node("DequantizeLinear", b, f"{out}/b", axis=1)]
    return parts.biased_product(node, real, bias)


def _integer_operator(node: onnx.NodeProto, parts: Parts) -> bool:
    """QLinearMatMul, QLinearAdd and QLinearMul: both operands and the result with a scale and a zero point each."""
    out, inputs = node.output[0], node.input
    a = parts.node("DequantizeLinear", inputs[:3], f"{out}/a", axis=1)
    b = parts.node("DequantizeLinear", inputs[3:6], f"{out}/b", axis=1)
    real = parts.node(node.op_type.removeprefix("QLinear"), [a, b], f"{out}/real", name=node.name)
    parts.node("QuantizeLinear", [real, *inputs[6:8]], out)
    return True


def _pointwise(node: onnx.NodeProto, parts: Parts) -> bool:
    """A convolution of kernel 1, as the product that it is: x [batch, channels, …], a weight [out, in, 1, …]."""
    out, (x, weight, *bias) = node.output[0], node.input
    rank = 2 + len(attributes_of(node)["kernel_shape"])
    last, first = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
    shape = parts.constant(f"{out}/shape", np.array([0, -1]))
    flat = parts.node("Reshape", [weight, shape], f"{out}/flat")
    turned = parts.node("Transpose", [flat], f"{out}/weight", perm=(1, 0))
    channels = parts.node("Transpose", [x], f"{out}/channels_last", perm=last)
    product = parts.node("MatMul", [channels, turned], f"{out}/product", name=node.name)
    if any(bias):
        product = parts.node("Add", [product, *bias], f"{out}/biased")
    parts.node("Transpose", [product], out, perm=first)
    return True


LOWERINGS: dict[str, Lowering] = {
    "Conv": _pointwise,
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_norm),
    **dict.fromkeys(("BiasGelu", "FastGelu", "Gelu"), _gelu),
    "QuickGelu": _quick_gelu,
    "EmbedLayerNormalization": _embed_norm,
    "Attention": attention,
    "MultiHeadAttention": multi_head_attention,
    "QAttention": quantised_attention,
    "RotaryEmbedding": rotary_embedding,
    **dict.fromkeys(("MatMulIntegerToFloat", "DynamicQuantizeMatMul"), _real_product),
    "MatMulNBits": _packed_product,
    **dict.fromkeys(("QLinearMatMul", "QLinearAdd", "QLinearMul"), _integer_operator),
    "SplitToSequence": split_to_sequence,
    "SequenceAt": sequence_at,
    "ScatterElements": one_overwritten,
    "ScatterND": overwritten,
    **dict.fromkeys(CUTS, part_taken),
}
