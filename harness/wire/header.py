"""The header of a frame: the message and what tensors come with it, known before any of their data (docs/wire.md)."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import safetensors.numpy

_ALIGNED = 8


class FrameError(Exception):
    """What came over the wire is no frame."""


@dataclass(frozen=True)
class Entry:
    """One tensor of a frame, as its header announces it; the data of the entries follow each other without gaps."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


def written(
    message: str, tensors: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
) -> tuple[bytes, tuple[str, ...]]:
    """The header of these tensors, its length before it, byte for byte as safetensors writes it; and their order.

    safetensors says itself in which order it puts the names, and what it calls each dtype: of tensors without elements.
    """
    empty = {name: np.empty(0, dtype) for name, (dtype, _) in tensors.items()}
    template = safetensors.numpy.save(empty, metadata={"message": message})
    header = json.loads(template[_ALIGNED:])
    names, at = tuple(name for name in header if name != "__metadata__"), 0
    for name in names:
        dtype, shape = tensors[name]
        end = at + Entry(name, dtype, shape).nbytes
        header[name] |= {"shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return len(text).to_bytes(_ALIGNED, "little") + text, names


def read(header: bytes, data_length: int) -> tuple[dict[str, Any], list[Entry]]:
    """The message in a header, and the tensors in the order in which their data lie; `data_length` bytes follow it."""
    try:
        announced = json.loads(header.decode())
        metadata = announced.pop("__metadata__", {})
        message = json.loads(metadata["message"])
        if not all(isinstance(value, str) for value in metadata.values()):
            raise TypeError("metadata that is not text")
        entries = list(_entries(announced, data_length))
    except KeyError:
        raise FrameError("a frame whose metadata has no 'message'") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FrameError(f"a frame that is not safetensors with a JSON message: {error}") from None
    if not isinstance(message, dict):
        raise FrameError("a frame whose message is not a JSON object")
    return message, entries


def _entries(announced: dict[str, Any], data_length: int) -> Iterator[Entry]:
    """Each tensor, if together they fill the data without gaps; ValueError or TypeError if they do not."""
    at = 0
    for name, info in sorted(announced.items(), key=lambda item: _offsets(*item)):
        begin, end = _offsets(name, info)
        shape = info.get("shape")
        if not isinstance(shape, list) or any(type(size) is not int or size < 0 for size in shape):
            raise ValueError(f"tensor {name!r} has the shape {shape}")
        entry = Entry(name, _numpy_dtype(info.get("dtype")), tuple(shape))
        if begin != at or end - begin != entry.nbytes:
            due = f"{at} … {at + entry.nbytes}"
            raise ValueError(f"tensor {name!r} lies at {begin} … {end} of the data instead of {due}")
        yield entry
        at = end
    if at != data_length:
        raise ValueError(f"its tensors have {at} bytes, and {data_length} follow the header")


def _offsets(name: str, info: dict[str, Any]) -> tuple[int, int]:
    offsets = info.get("data_offsets")
    if not isinstance(offsets, list) or [type(offset) for offset in offsets] != [int, int]:
        raise ValueError(f"tensor {name!r} has the data_offsets {offsets}")
    begin, end = offsets
    return begin, end


def _numpy_dtype(name: Any) -> np.dtype[Any]:
    """safetensors names a dtype F32, I64, BOOL, BF16, …"""
    if name == "BF16":  # NumPy has it from ml_dtypes, which only an environment needs that computes in it
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
