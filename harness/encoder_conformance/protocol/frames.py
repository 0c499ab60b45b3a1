"""Frames: a length, then a safetensors file whose metadata holds the JSON message (docs/wire.md).

    8 bytes   length of what follows, unsigned, little-endian
    n bytes   safetensors; metadata {"message": "<JSON object>"}; the tensors of the message

Both sides use this module. It needs numpy and safetensors only, so it runs in any implementation's environment.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import safetensors.numpy

from encoder_conformance.protocol.header import FrameError, TensorEntry, parse_header, write_header
from encoder_conformance.protocol.streamed import PART, Array, Receive, Streamed, filled, parts_of, whole

PROTOCOL = 3
WHOLE = "whole"
"""The key, beside the stages, of the seconds of a whole pass by the code path of `output`, in answers to `profile`."""
LARGEST_FRAME = 2**31
"""Bytes. A longer frame is refused before it is read: garbage on the wire looks like an enormous length."""
_TOGETHER = 1 << 16
"""Bytes. Shorter pieces are gathered before they are written."""
LARGEST_HEADER = 1 << 24
"""Bytes. The header is read whole; the longest that is known is the description of an ONNX file."""
LARGE = 1 << 20
"""Bytes of tensor data from which a frame is written and read in parts. In one piece it is copied several times."""
_OPENING = 8 + 8 + 1
"""Bytes: the frame's length, the length of safetensors' header, and the header's opening brace."""

Tensors = dict[str, np.ndarray[Any, Any]]
Sendable = Mapping[str, Array | Streamed]


class EndOfStream(FrameError):
    """The other side closed the stream between two frames."""


class CutOff(FrameError):
    """The other side closed the stream within a frame."""


class Readable(Protocol):
    """A source of bytes: up to `count` of them, at least one, and none at the end."""

    def read(self, count: int, /) -> bytes | memoryview: ...


class Writable(Protocol):
    """A sink of bytes, which says how many it has taken."""

    def write(self, data: memoryview, /) -> int: ...


@dataclass
class Frame:
    message: dict[str, Any]
    tensors: Tensors = field(default_factory=dict)


def encode(message: Mapping[str, Any], tensors: Sendable | None = None) -> bytes:
    """A whole frame."""
    return b"".join(pieces(message, tensors))


def pieces(message: Mapping[str, Any], tensors: Sendable | None = None) -> Iterable[bytes | memoryview]:
    """A frame in pieces that are to be written in order. Raises now, not while writing, for an unsupported dtype."""
    arrays = {name: t if isinstance(t, Streamed) else np.asarray(t) for name, t in (tensors or {}).items()}
    data_length = sum(array.nbytes for array in arrays.values())
    if data_length < LARGE:
        # ascontiguousarray makes a 0-d array 1-d; reshape restores the adapter's shape.
        shaped = {name: np.ascontiguousarray(whole(array)).reshape(array.shape) for name, array in arrays.items()}
        body = safetensors.numpy.save(shaped, metadata={"message": json.dumps(message)})
        return len(body).to_bytes(8, "little"), body
    header, order = write_header(json.dumps(message), arrays)
    length = len(header) + data_length
    return _large_pieces(length.to_bytes(8, "little") + header, [arrays[name] for name in order])


def decode(body: bytes | memoryview) -> Frame:
    """Decode a small frame's body: the bytes after its length. Raises FrameError."""
    data_at = 8 + int.from_bytes(body[:8], "little")
    message, entries = parse_header(bytes(body[8:data_at]), len(body) - data_at)
    tensors = Tensors()
    for entry in entries:  # copied: a matrix library may sum in another order where a tensor lies at an odd address
        tensors[entry.name] = np.ndarray(entry.shape, entry.dtype, body, data_at).copy()
        data_at += entry.nbytes
    return Frame(message, tensors)


def read_frame(stream: Readable, receive: Receive | None = None, largest: int = LARGEST_FRAME) -> Frame:
    """Read the next frame. Tensors of a large frame that `receive` takes are not in the result.

    Raises EndOfStream if the stream ends before the frame, CutOff if it ends within it, and FrameError if it is
    malformed or longer than `largest` bytes, which is found out before it is read.
    """
    opening = bytes(_read_up_to(stream, _OPENING))
    if not opening:
        raise EndOfStream("the stream ended")
    length, header_length = int.from_bytes(opening[:8], "little"), int.from_bytes(opening[8:16], "little")
    # Text on the wire could pass for the length of a frame that never comes: check safetensors' own header too.
    if length > LARGEST_FRAME or not 0 < header_length <= length - 8 or opening[16:] != b"{":
        raise FrameError(f"something that is not a frame: {opening!r}")
    if length > largest:
        raise FrameError(f"a frame of {length} bytes, where {largest} are more than the answer can need")
    if header_length > LARGEST_HEADER:
        raise FrameError(f"a frame with a header of {header_length} bytes, where {LARGEST_HEADER} are allowed")
    incoming = _Incoming(stream, length, len(opening) - 8)
    if length < LARGE:
        return decode(opening[8:] + incoming.take(length - 9))
    message, entries = parse_header(b"{" + incoming.take(header_length - 1), length - 8 - header_length)
    tensors = Tensors()
    for entry in entries:
        if sink := receive and receive(entry.name, entry.dtype, entry.shape):
            for part in incoming.parts(entry):
                sink(part)
        else:
            tensors[entry.name] = filled(entry.shape, entry.dtype, incoming.parts(entry))
    return Frame(message, tensors)


def write_frame(stream: Writable, message: Mapping[str, Any], tensors: Sendable | None = None) -> None:
    """Write a whole frame."""
    write_pieces(stream, pieces(message, tensors))


def write_pieces(stream: Writable, frame: Iterable[bytes | memoryview]) -> None:
    """Write the pieces of a frame in order, small ones together."""
    small = bytearray()
    for piece in frame:
        if len(piece) < _TOGETHER:
            small += piece
        else:
            _write_all(stream, small)
            _write_all(stream, piece)
            small = bytearray()
    _write_all(stream, small)


def _write_all(stream: Writable, data: bytes | bytearray | memoryview) -> None:
    left = memoryview(data)
    while left:
        left = left[stream.write(left) :]


def _large_pieces(opening: bytes, tensors: list[Array | Streamed]) -> Iterator[bytes | memoryview]:
    yield opening
    for tensor in tensors:
        for part in parts_of(tensor):
            yield part.astype(part.dtype.newbyteorder("<"), copy=False).view(np.uint8).data


class _Incoming:
    """The rest of a frame of `length` bytes after the first `read`. Raises CutOff if the stream ends within it."""

    def __init__(self, stream: Readable, length: int, read: int) -> None:
        self._stream, self._length, self._read = stream, length, read

    def take(self, count: int) -> bytes | memoryview:
        data = _read_up_to(self._stream, count)
        self._read += len(data)
        if len(data) < count:
            raise CutOff(f"a frame cut off after {self._read} of {self._length} bytes")
        return data

    def parts(self, entry: TensorEntry) -> Iterator[Array]:
        """The elements of a tensor, in flat parts."""
        for begin in range(0, entry.size, PART):
            count = min(PART, entry.size - begin)
            yield np.frombuffer(self.take(count * entry.dtype.itemsize), entry.dtype)


def _read_up_to(stream: Readable, count: int) -> bytes | memoryview:
    """The next `count` bytes, or fewer at the end of the stream. What comes in one piece is not copied."""
    first = stream.read(min(count, 1 << 20)) if count else b""
    if len(first) == count or not first:
        return first
    parts, left = [first], count - len(first)
    while left:
        part = stream.read(min(left, 1 << 20))
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
