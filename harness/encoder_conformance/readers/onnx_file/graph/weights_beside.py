"""Writes a large model with its weights in a file of their own, of which a runtime reads what it computes with.

In one file a runtime parses all weights before it copies each, and holds them twice while it loads.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import onnx
from google.protobuf.message import Message
from onnx import TensorProto

_LEAST = 1 << 10
"""Bytes of a tensor that is written beside: from a smaller one, such as a shape, a runtime infers shapes."""
_PAGE = 1 << 12
"""Each begins at a page, as it is mapped into memory."""


def write_weights_beside(
    model: onnx.ModelProto,
    folder: Path,
    outputs: Iterable[onnx.ValueInfoProto] = (),
    nodes: Iterable[onnx.NodeProto] = (),
) -> Path:
    """The path, in this folder, of the model with more outputs, and more nodes behind its own. No copy of all weights
    is made."""
    path = folder / "model.onnx"
    written = onnx.ModelProto()
    _copy(model, written, without="graph")
    _copy(model.graph, written.graph, without="initializer")
    written.graph.output.extend(outputs)
    written.graph.node.extend(nodes)
    with (folder / "weights").open("wb") as weights:
        for tensor in model.graph.initializer:
            _write(tensor, written.graph.initializer.add(), weights)
    path.write_bytes(written.SerializeToString())
    return path


def _copy(source: Message, copied: Message, without: str) -> None:
    """Every field but one."""
    for field, value in source.ListFields():
        if field.name == without:
            continue
        if hasattr(value, "extend"):
            getattr(copied, field.name).extend(value)
        elif isinstance(value, Message):
            getattr(copied, field.name).CopyFrom(value)
        else:
            setattr(copied, field.name, value)


def _write(tensor: TensorProto, beside: TensorProto, weights: BinaryIO) -> None:
    numbers = tensor.raw_data
    if len(numbers) < _LEAST:
        beside.CopyFrom(tensor)
        return
    _copy(tensor, beside, without="raw_data")
    weights.seek(-weights.tell() % _PAGE, 1)
    place = {"location": Path(weights.name).name, "offset": weights.tell(), "length": len(numbers)}
    beside.data_location = TensorProto.EXTERNAL
    for key, value in place.items():
        beside.external_data.add(key=key, value=str(value))
    weights.write(numbers)
