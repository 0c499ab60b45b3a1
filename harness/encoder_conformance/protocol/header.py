"""The header of a frame: the message, and name, dtype, shape and offsets of each tensor (docs/wire.md)."""

import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy

from encoder_conformance.protocol.streamed import Array, Streamed

_ALIGNMENT = 8


class FrameError(Exception):
    """Bytes on the wire that are no frame."""


class TensorEntry(NamedTuple):
    """One tensor in a frame's header. The data of all entries are contiguous."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


def write_header(message: str, tensors: Mapping[str, Array | Streamed]) -> tuple[bytes, tuple[str, ...]]:
    """The header of these tensors after its length, byte for byte as safetensors writes it, and the tensors' order.

    The order of names and the names of dtypes come from safetensors itself: it serialises tensors without elements.
    """
    empty = {name: np.empty(0, tensor.dtype) for name, tensor in tensors.items()}
    template = safetensors.numpy.save(empty, metadata={"message": message})
    header = json.loads(template[_ALIGNMENT:])
    names, begin = tuple(name for name in header if name != "__metadata__"), 0
    for name in names:
        end = begin + tensors[name].nbytes
        header[name] |= {"shape": list(tensors[name].shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(_ALIGNMENT, "little") + text, names


def parse_header(header: bytes, data_length: int) -> tuple[dict[str, Any], list[TensorEntry]]:
    """The message in a header, and the tensors in the order of their data, which are `data_length` bytes.

    Raises FrameError for a malformed header.
    """
    try:
        tensors = json.loads(header.decode())
        metadata = tensors.pop("__metadata__", {})
        message = json.loads(metadata["message"])
        if not all(isinstance(value, str) for value in metadata.values()):
            raise TypeError("metadata that is not text")
        entries = list(_entries(tensors, data_length))
    except KeyError:
        raise FrameError("a frame whose metadata has no 'message'") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FrameError(f"a frame that is not safetensors with a JSON message: {error}") from None
    if not isinstance(message, dict):
        raise FrameError("a frame whose message is not a JSON object")
    return message, entries


def _entries(tensors: dict[str, Any], data_length: int) -> Iterator[TensorEntry]:
    """Each tensor of a header. Raises ValueError or TypeError unless they fill the data without gaps."""
    expected_begin = 0
    for begin, end, name in sorted((*_offsets(name, info), name) for name, info in tensors.items()):
        info = tensors[name]
        shape = info.get("shape")
        if not isinstance(shape, list) or any(type(size) is not int or size < 0 for size in shape):
            raise ValueError(f"tensor {name!r} has the shape {shape}")
        entry = TensorEntry(name, _numpy_dtype(info.get("dtype")), tuple(shape))
        if begin != expected_begin or end - begin != entry.nbytes:
            expected = f"{expected_begin} … {expected_begin + entry.nbytes}"
            raise ValueError(f"tensor {name!r} lies at {begin} … {end} of the data instead of {expected}")
        yield entry
        expected_begin = end
    if expected_begin != data_length:
        raise ValueError(f"its tensors have {expected_begin} bytes, and {data_length} follow the header")


def _offsets(name: str, info: dict[str, Any]) -> tuple[int, int]:
    offsets = info.get("data_offsets")
    if not isinstance(offsets, list) or len(offsets) != 2 or not type(offsets[0]) is type(offsets[1]) is int:
        raise ValueError(f"tensor {name!r} has the data_offsets {offsets}")
    begin, end = offsets
    return begin, end


def _numpy_dtype(name: Any) -> np.dtype[Any]:
    """safetensors names a dtype F32, I64, BOOL, BF16, …"""
    if name == "BF16":  # from ml_dtypes, which only environments that compute in bfloat16 need
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    if name not in _DTYPES:
        raise FrameError(f"a frame with a tensor of a dtype that numpy lacks: {name!r}")
    return _DTYPES[name]


_DTYPES = {
    "BOOL": np.dtype(np.bool_),
    **{f"F{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    **{f"I{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"U{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
}
