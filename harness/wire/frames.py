"""Frames: a length, then a safetensors file whose metadata holds the JSON message (docs/wire.md).

    8 bytes   length of what follows, unsigned, little-endian
    n bytes   safetensors; metadata {"message": "<JSON object>"}; the tensors of the message

Used on both sides; needs numpy and safetensors only, so that it runs in any implementation's environment.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import safetensors.numpy

from encoder_conformance.wire.header import Entry, FrameError, read, written
from encoder_conformance.wire.streamed import PART, Array, Receive, Sink, Streamed, parts_of, whole

PROTOCOL = 3
WHOLE = "whole"
"""The key, beside the stages', of the seconds that a whole pass takes by the exporter of `output`."""
LARGEST_FRAME = 2**31
"""A longer frame is refused before it is read: garbage on the wire looks like an enormous length."""
LARGE = 1 << 20
"""Bytes from which a frame is written and read a part at a time: in one piece it is copied several times over."""
_OPENING = 8 + 8 + 1
"""The length, the length of safetensors' header, and the brace that the header begins with."""

Tensors = dict[str, np.ndarray[Any, Any]]
Sendable = Mapping[str, Array | Streamed]


class EndOfStream(FrameError):
    """The other side closed the stream between two frames."""


@dataclass
class Frame:
    message: dict[str, Any]
    tensors: Tensors = field(default_factory=dict)


def encode(message: Mapping[str, Any], tensors: Sendable | None = None) -> bytes:
    """A whole frame."""
    return b"".join(pieces(message, tensors))


def pieces(message: Mapping[str, Any], tensors: Sendable | None = None) -> Iterable[bytes | memoryview]:
    """A frame, to be written one piece after the other. What cannot be sent is said now: the header is made."""
    given = {name: each if isinstance(each, Streamed) else np.asarray(each) for name, each in (tensors or {}).items()}
    data_length = sum(each.nbytes for each in given.values())
    if data_length < LARGE:
        body = _small(message, given)
        return len(body).to_bytes(8, "little"), body
    header, order = written(json.dumps(message), {name: (each.dtype, each.shape) for name, each in given.items()})
    length = len(header) + data_length
    return _large(length.to_bytes(8, "little") + header, [given[name] for name in order])


def decode(body: bytes) -> Frame:
    """A frame without the length before it, which is small."""
    data_at = 8 + int.from_bytes(body[:8], "little")
    message, entries = read(body[8:data_at], len(body) - data_at)
    tensors = Tensors()
    for entry in entries:  # copied: a matrix library may sum in another order where a tensor lies at an odd address
        tensors[entry.name] = np.ndarray(entry.shape, entry.dtype, body, data_at).copy()
        data_at += entry.nbytes
    return Frame(message, tensors)


def read_frame(stream: IO[bytes], receive: Receive | None = None) -> Frame:
    """The next frame. The tensors of a large one that `receive` takes are not among the frame's."""
    opening = _exactly(stream, _OPENING)
    if not opening:
        raise EndOfStream("the stream ended")
    length, header_length = int.from_bytes(opening[:8], "little"), int.from_bytes(opening[8:16], "little")
    # Text on the wire could pass for the length of a frame that never comes: look at safetensors' own header too.
    if length > LARGEST_FRAME or not 0 < header_length <= length - 8 or opening[16:] != b"{":
        raise FrameError(f"something that is not a frame: {opening!r}")
    incoming = _Incoming(stream, length, len(opening) - 8)
    if length < LARGE:
        return decode(opening[8:] + incoming.take(length - 9))
    message, entries = read(b"{" + incoming.take(header_length - 1), length - 8 - header_length)
    tensors = Tensors()
    for entry in entries:
        if sink := receive and receive(entry.name, entry.dtype, entry.shape):
            incoming.hand_on(entry, sink)
        else:
            tensors[entry.name] = incoming.whole(entry)
    return Frame(message, tensors)


def write_frame(stream: IO[bytes], message: Mapping[str, Any], tensors: Sendable | None = None) -> None:
    stream.writelines(pieces(message, tensors))
    stream.flush()


def _small(message: Mapping[str, Any], tensors: Sendable) -> bytes:
    # ascontiguousarray makes a 0-d array 1-d; keep the shape that the adapter meant.
    shaped = {name: np.ascontiguousarray(whole(tensor)).reshape(tensor.shape) for name, tensor in tensors.items()}
    return safetensors.numpy.save(shaped, metadata={"message": json.dumps(message)})


def _large(opening: bytes, tensors: list[Array | Streamed]) -> Iterator[bytes | memoryview]:
    yield opening
    for tensor in tensors:
        for part in parts_of(tensor):
            yield part.astype(part.dtype.newbyteorder("<"), copy=False).view(np.uint8).data


class _Incoming:
    """What is left of a frame of `length` bytes, of which `read` are read; FrameError where the stream ends in it."""

    def __init__(self, stream: IO[bytes], length: int, read: int) -> None:
        self._stream, self._length, self._read = stream, length, read

    def take(self, count: int) -> bytes:
        taken = _exactly(self._stream, count)
        self._read += len(taken)
        if len(taken) < count:
            raise FrameError(f"a frame cut off after {self._read} of {self._length} bytes")
        return taken

    def hand_on(self, entry: Entry, sink: Sink) -> None:
        """The elements of a tensor, a part at a time."""
        for begin in range(0, entry.size, PART):
            count = min(PART, entry.size - begin)
            sink(np.frombuffer(self.take(count * entry.dtype.itemsize), entry.dtype))

    def whole(self, entry: Entry) -> Array:
        array, at = np.empty(entry.shape, entry.dtype), 0
        flat = array.reshape(-1)

        def keep(part: Array) -> None:
            nonlocal at
            flat[at : at + part.size] = part
            at += part.size

        self.hand_on(entry, keep)
        return array


def _exactly(stream: IO[bytes], count: int) -> bytes:
    """So many bytes, or fewer at the end of the stream."""
    parts = []
    while count:
        part = stream.read(min(count, 1 << 20))
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
