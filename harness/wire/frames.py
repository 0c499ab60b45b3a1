"""Frames: a length, then a safetensors file whose metadata holds the JSON message (docs/wire.md).

    8 bytes   length of what follows, unsigned, little-endian
    n bytes   safetensors; metadata {"message": "<JSON object>"}; the tensors of the message

Used on both sides; needs numpy and safetensors only, so that it runs in any implementation's environment.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import safetensors
import safetensors.numpy

PROTOCOL = 3
UNSUPPORTED = "unsupported: "
"""How the error begins with which an adapter says that it has no such operation, and why."""
WHOLE = "whole"
"""The key, beside the stages', of the seconds that a whole pass takes by the road of `output`."""
LARGEST_FRAME = 2**31
"""A longer frame is refused before it is read: garbage on the wire looks like an enormous length."""
_OPENING = 8 + 8 + 1
"""The length, the length of safetensors' header, and the brace that the header begins with."""

Tensors = dict[str, np.ndarray[Any, Any]]


class FrameError(Exception):
    """What came over the wire is no frame."""


class EndOfStream(FrameError):
    """The other side closed the stream between two frames."""


@dataclass
class Frame:
    message: dict[str, Any]
    tensors: Tensors = field(default_factory=dict)


def encode(message: Mapping[str, Any], tensors: Mapping[str, np.ndarray[Any, Any]] | None = None) -> bytes:
    """A whole frame."""
    body = _body(message, tensors)
    return len(body).to_bytes(8, "little") + body


def _body(message: Mapping[str, Any], tensors: Mapping[str, np.ndarray[Any, Any]] | None) -> bytes:
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in (tensors or {}).items()}
    # ascontiguousarray makes a 0-d array 1-d; keep the shape that the adapter meant.
    shaped = {name: contiguous[name].reshape(np.shape(tensor)) for name, tensor in (tensors or {}).items()}
    return safetensors.numpy.save(shaped, metadata={"message": json.dumps(message)})


def decode(body: bytes) -> Frame:
    try:
        tensors = {name: _array(**view) for name, view in safetensors.deserialize(body)}  # type: ignore[no-untyped-call]
        header = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])
        message = json.loads(header.get("__metadata__", {})["message"])
    except KeyError as error:
        wrong = "whose metadata has no" if error.args == ("message",) else "with a tensor of a dtype that numpy lacks:"
        raise FrameError(f"a frame {wrong} {error}") from None
    except (safetensors.SafetensorError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FrameError(f"a frame that is not safetensors with a JSON message: {error}") from None
    if not isinstance(message, dict):
        raise FrameError("a frame whose message is not a JSON object")
    return Frame(message, tensors)


def read_frame(stream: IO[bytes]) -> Frame:
    opening = _exactly(stream, _OPENING)
    if not opening:
        raise EndOfStream("the stream ended")
    length, header_length = int.from_bytes(opening[:8], "little"), int.from_bytes(opening[8:16], "little")
    # Text on the wire could pass for the length of a frame that never comes: look at safetensors' own header too.
    if length > LARGEST_FRAME or not 0 < header_length <= length - 8 or opening[16:] != b"{":
        raise FrameError(f"something that is not a frame: {opening!r}")
    rest = _exactly(stream, length - len(opening) + 8, before=opening[8:])
    if len(rest) < length:
        raise FrameError(f"a frame cut off after {len(rest)} of {length} bytes")
    return decode(rest)


def write_frame(
    stream: IO[bytes], message: Mapping[str, Any], tensors: Mapping[str, np.ndarray[Any, Any]] | None = None
) -> None:
    body = _body(message, tensors)
    stream.write(len(body).to_bytes(8, "little"))
    stream.write(body)
    stream.flush()


def _array(dtype: str, shape: list[int], data: bytes) -> np.ndarray[Any, Any]:
    array = np.frombuffer(data, dtype=_numpy_dtype(dtype)).reshape(shape)
    return array if array.flags.writeable else array.copy()  # safetensors hands over a bytearray of its own


def _numpy_dtype(name: str) -> np.dtype[Any]:
    """safetensors names a dtype F32, I64, BOOL, BF16, …; raises KeyError for what NumPy lacks."""
    if name == "BF16":  # NumPy has it from ml_dtypes, which only an environment needs that computes in it
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    kinds = {"F": "float", "I": "int", "U": "uint"}
    if name == "BOOL":
        return np.dtype(np.bool_)
    if name[:1] not in kinds or name[1:] not in ("8", "16", "32", "64"):
        raise KeyError(name)
    return np.dtype(kinds[name[0]] + name[1:]).newbyteorder("<")


def _exactly(stream: IO[bytes], count: int, before: bytes = b"") -> bytes:
    """`before` and `count` bytes after it, or fewer at the end of the stream."""
    parts = [before]
    while count:
        part = stream.read(min(count, 1 << 20))
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
