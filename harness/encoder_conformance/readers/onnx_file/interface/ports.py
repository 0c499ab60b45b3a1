"""The declared inputs and outputs of a graph."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import ml_dtypes  # noqa: F401  makes bfloat16 a name of np.dtype
import onnx

from encoder_conformance.protocol.description import Port

if TYPE_CHECKING:
    from encoder_conformance.readers.onnx_file.interface.angles import AngleInput

FLOATS = {"float32", "float64", "float16", "bfloat16"}
INTEGERS = {"int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"}


@dataclass(frozen=True)
class Interface:
    """x, the layer's output and the rest of a graph's inputs. `masks`: every input that is not x. `angles`: those
    by which queries and keys turn, and nothing else, and what each holds."""

    x: Port
    output: Port
    masks: tuple[Port, ...]
    angles: Mapping[str, "AngleInput"] = field(default_factory=dict)


def port_of(info: onnx.ValueInfoProto) -> Port:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return Port(name=info.name, dtype=kind or "unknown", shape=None)
    tensor = info.type.tensor_type
    try:
        name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    except ValueError:
        name = "unknown"
    dtype = {"float": "float32", "double": "float64"}.get(name, name)
    # PaddlePaddle's converter writes -1 for a size that is free.
    known = (dim.HasField("dim_value") and dim.dim_value >= 0 for dim in tensor.shape.dim)
    sizes = (
        int(dim.dim_value) if is_known else dim.dim_param or None
        for dim, is_known in zip(tensor.shape.dim, known, strict=True)
    )
    return Port(name=info.name, dtype=dtype, shape=tuple(sizes) if tensor.HasField("shape") else None)
