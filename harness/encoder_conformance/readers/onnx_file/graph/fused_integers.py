"""Lowers ONNX Runtime's products of integers to ONNX's own operators, and packed weights to the numbers they are."""

import numpy as np
import onnx
from onnx import helper

from encoder_conformance.readers.onnx_file.graph.integers import Integers
from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, input_at
from encoder_conformance.readers.onnx_file.graph.parts import Parts
from encoder_conformance.spec.axes import Array


def packed_product(node: onnx.NodeProto, parts: Parts) -> bool:
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
            zeros = _unpacked(zeros_held.reshape(N, -1), bits)[:, :blocks].astype(np.float64)
        else:
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


def real_product(node: onnx.NodeProto, parts: Parts) -> bool:
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


def integer_operator(node: onnx.NodeProto, parts: Parts) -> bool:
    """QLinearMatMul, QLinearAdd and QLinearMul: both operands and the result with a scale and a zero point each."""
    out, inputs = node.output[0], node.input
    a = parts.node("DequantizeLinear", inputs[:3], f"{out}/a", axis=1)
    b = parts.node("DequantizeLinear", inputs[3:6], f"{out}/b", axis=1)
    real = parts.node(node.op_type.removeprefix("QLinear"), [a, b], f"{out}/real", name=node.name)
    parts.node("QuantizeLinear", [real, *inputs[6:8]], out)
    return True
