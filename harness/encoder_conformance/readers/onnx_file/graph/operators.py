"""ONNX's operators, classified by their effect on the elements of a value."""

from math import prod

import onnx

FLOAT_TYPES = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)

MOVES = frozenset(
    (
        "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Tile", "Slice", "Split", "Gather",
        "GatherElements", "GatherND", "Concat",
    )
)  # fmt: skip
"""Rearrange, repeat or leave out."""
IDENTITIES = frozenset(("Identity", "Dropout", "Cast", "CastLike"))
ELEMENTWISE = frozenset(
    (
        "Add", "Sub", "Mul", "Div", "Pow", "Sum", "Mean", "Max", "Min", "Where", "Neg", "Abs", "Sqrt", "Reciprocal",
        "Exp", "Log", "Erf", "Tanh", "Sigmoid", "Relu", "LeakyRelu", "PRelu", "Elu", "Celu", "Selu", "Gelu", "Swish",
        "Mish", "HardSwish", "HardSigmoid", "Softplus", "Softsign", "ThresholdedRelu", "Clip", "IsNaN", "IsInf", "Not",
        "Sign", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "And", "Or", "Floor", "Ceil", "Round",
        "Mod",
    )
)  # fmt: skip
CURVED = frozenset(("Pow", "Abs", "Sqrt", "Erf", "Tanh", "Sigmoid", "Relu", "Gelu", "Swish"))
"""Those of one value that are no linear map: what goes through one is a step of its own before it."""
REDUCTIONS = frozenset(
    (
        "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL2", "ReduceL1",
        "ReduceLogSumExp", "ReduceProd", "ReduceLogSum", "GlobalAveragePool", "GlobalMaxPool",
    )
)  # fmt: skip
ROWWISE = frozenset(
    (
        "Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization",
        "LpNormalization", "MeanVarianceNormalization",
    )
)  # fmt: skip
"""Each element depends on its whole row, and the shape stays."""
CONVOLUTIONS = frozenset(("Conv", "FusedConv", "NhwcConv"))
PRODUCTS = frozenset(("MatMul", "Gemm", "Einsum", "FusedMatMul"))


def float_type_of(graph: onnx.GraphProto) -> int:
    """The floating-point format of most numbers among the weights."""
    sizes: dict[int, int] = {}
    for tensor in graph.initializer:
        if tensor.dims and tensor.data_type in FLOAT_TYPES:
            sizes[tensor.data_type] = sizes.get(tensor.data_type, 0) + prod(tensor.dims)
    return max(sizes, key=lambda each: sizes[each], default=onnx.TensorProto.FLOAT)
