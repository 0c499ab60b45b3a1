"""How a file is quantised: where its integers are, and with how many scales."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto

from encoder_conformance.protocol.quantised import IntegerWeights, Quantisation
from encoder_conformance.readers.onnx_file.graph.integers import cast_weights
from encoder_conformance.readers.onnx_file.graph.nodes import attributes_of, input_at
from encoder_conformance.readers.onnx_file.quantised.scales import scale_behind

_PRODUCTS = {
    "MatMulInteger": (1, None), "ConvInteger": (1, None), "DynamicQuantizeMatMul": (1, 2),
    "MatMulIntegerToFloat": (1, 3), "QAttention": (1, 4), "QLinearMatMul": (3, 4), "QLinearConv": (3, 4),
    "MatMulNBits": (1, 2),
}  # fmt: skip
"""A product of integers → the places of its weight and of that's scale."""


def quantisation(model: onnx.ModelProto) -> Quantisation | None:
    """None for a file without integer weights that rounds no activation. Constant nodes are initializers already."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    weights = Counter(_weights(model.graph, held))
    static = [node for node in model.graph.node if node.op_type == "QuantizeLinear" and node.input[0] not in held]
    dynamic = [node for node in model.graph.node if node.op_type in ("DynamicQuantizeLinear", "DynamicQuantizeMatMul")]
    if not (weights or static or dynamic):
        return None
    return Quantisation(
        weights=tuple(
            IntegerWeights(form=each[0], stored=each[1], scales=each[2], count=n) for each, n in weights.items()
        ),
        static=len(static),
        dynamic=len(dynamic),
    )


def _weights(graph: onnx.GraphProto, held: dict[str, TensorProto]) -> Iterator[tuple[str, str, str]]:
    """(Form, format, scales) of each matrix and vector that is stored as integers."""
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in held:
            yield "QDQ", _format(held[node.input[0]]), _scales(held.get(node.input[1]), attributes_of(node))
        elif node.op_type in _PRODUCTS:
            weight, scale = _PRODUCTS[node.op_type]
            if (name := input_at(node, weight)) in held:
                by = held.get(input_at(node, scale)) if scale is not None else scale_behind(node, graph.node, held)
                attributes = attributes_of(node)
                stored = f"uint{attributes['bits']}" if "bits" in attributes else _format(held[name])
                yield node.op_type, stored, _scales(by, attributes)
    for weight, by in cast_weights(graph).values():
        yield "Cast · Mul", _format(weight), _scales(by, {})


def _format(tensor: TensorProto) -> str:
    return str(TensorProto.DataType.Name(tensor.data_type).lower())


def _scales(scale: TensorProto | None, attributes: dict[str, object]) -> str:
    if attributes.get("block_size"):
        return "by block"
    if scale is None:
        return "by scales that are computed"
    return "by tensor" if int(np.prod(scale.dims)) <= 1 else "by channel"
