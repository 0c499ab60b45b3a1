"""Frames: what is written is read again, and whatever else comes over the wire is a FrameError and nothing worse."""

import io
import json
import struct
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder_conformance.protocol.frames import (
    LARGE,
    LARGEST_FRAME,
    EndOfStream,
    Frame,
    FrameError,
    decode,
    encode,
    read_frame,
    write_frame,
)
from encoder_conformance.protocol.streamed import PART, Streamed

DTYPES = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "uint64", "bool")
MESSAGE = {"op": "run", "check": "output"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
repeatably = settings(deadline=None, derandomize=True)


def through(message: dict[str, Any], tensors: dict[str, Any] | None = None) -> Frame:
    stream = io.BytesIO()
    write_frame(stream, message, tensors)
    stream.seek(0)
    frame = read_frame(stream)
    assert not stream.read()
    return frame


def safetensors_file(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def framed(body: bytes) -> io.BytesIO:
    return io.BytesIO(struct.pack("<Q", len(body)) + body)


def with_tensor(dtype: str, shape: list[int], data: bytes) -> bytes:
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}
    return safetensors_file(json.dumps({"__metadata__": {"message": "{}"}, "x": entry}).encode(), data)


@pytest.mark.parametrize("shape", [(2, 3), (5,), (), (0,), (0, 3), (1, 1, 1)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_shape_comes_back_bit_for_bit(dtype: str, shape: tuple[int, ...]) -> None:
    tensor = (np.arange(np.prod(shape, dtype=int)) % 2).astype(dtype).reshape(shape)
    frame = through(MESSAGE, {"x": tensor})
    assert frame.message == MESSAGE
    assert frame.tensors.keys() == {"x"}
    found = frame.tensors["x"]
    assert (found.dtype, found.shape) == (tensor.dtype, shape)
    assert found.tobytes() == tensor.tobytes()


@pytest.mark.parametrize(
    "tensor",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
        np.arange(12)[::3],
        np.arange(12.0)[::-1],
        np.broadcast_to(np.float32(3), (2, 4)),
        np.arange(24.0).reshape(2, 3, 4)[:, 1:, ::2],
        np.arange(4, dtype=">f4"),
    ],
    ids=["transposed", "fortran", "strided", "reversed", "broadcast", "sliced", "big-endian"],
)
def test_tensors_that_do_not_lie_in_order_come_back_equal(tensor: np.ndarray[Any, Any]) -> None:
    found = through({}, {"x": tensor}).tensors["x"]
    assert found.shape == tensor.shape
    assert found.dtype == tensor.dtype.newbyteorder("=")
    assert np.array_equal(found, tensor)


def test_values_that_are_not_finite_come_back_as_they_were() -> None:
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324])
    assert through({}, {"x": special}).tensors["x"].tobytes() == special.tobytes()


@repeatably
@given(message=st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_any_message_comes_back(message: dict[str, Any]) -> None:
    frame = through(message)
    assert frame.message == message
    assert frame.tensors == {}


@repeatably
@given(names=st.lists(st.text(max_size=12).filter(lambda name: name != "__metadata__"), max_size=5, unique=True))
def test_tensors_keep_their_names(names: list[str]) -> None:
    tensors = {name: np.full(3, i) for i, name in enumerate(names)}
    found = through(MESSAGE, tensors).tensors
    assert found.keys() == tensors.keys()
    assert all(np.array_equal(found[name], tensor) for name, tensor in tensors.items())


def test_frames_follow_one_another_and_then_the_stream_ends() -> None:
    stream = io.BytesIO()
    for i in range(3):
        write_frame(stream, {"id": i}, {"x": np.full(i, i)})
    stream.seek(0)
    assert [read_frame(stream).message["id"] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(EndOfStream):
        read_frame(stream)


def test_a_frame_cut_off_at_any_byte_is_told_from_the_end_of_the_stream() -> None:
    whole = encode(MESSAGE, {"x": np.arange(3.0), "mask": np.array([True])})
    assert read_frame(io.BytesIO(whole)).message == MESSAGE
    with pytest.raises(EndOfStream):
        read_frame(io.BytesIO(b""))
    for length in range(1, len(whole)):
        with pytest.raises(FrameError) as caught:
            read_frame(io.BytesIO(whole[:length]))
        assert not isinstance(caught.value, EndOfStream), length


def test_a_frame_cut_off_says_how_far_it_came() -> None:
    whole = encode(MESSAGE, {"x": np.arange(3.0)})
    with pytest.raises(FrameError, match=f"after {len(whole) - 18} of {len(whole) - 8} bytes"):
        read_frame(io.BytesIO(whole[:-10]))


class Trickle(io.RawIOBase):
    """A pipe that gives one byte at a time."""

    def __init__(self, data: bytes) -> None:
        self.data = io.BytesIO(data)

    def read(self, count: int = -1) -> bytes:
        return self.data.read(min(count, 1))


def test_a_pipe_that_trickles_is_read_to_the_frames_end() -> None:
    stream = Trickle(encode(MESSAGE, {"x": np.arange(3.0)}) * 2)
    for _ in range(2):
        assert read_frame(stream).tensors["x"].tolist() == [0, 1, 2]  # type: ignore[arg-type]
    with pytest.raises(EndOfStream):
        read_frame(stream)  # type: ignore[arg-type]


class NoMore(io.BytesIO):
    """Nothing is read beyond what is there: an enormous length must be refused before it is read."""

    def read(self, count: int | None = -1, /) -> bytes:
        assert count is not None
        assert 0 <= count <= 64
        return super().read(count)


@pytest.mark.parametrize("length", [LARGEST_FRAME + 1, 2**40, 2**64 - 1])
def test_an_enormous_length_is_refused_before_it_is_read(length: int) -> None:
    header = struct.pack("<Q", 20) + b"{"
    with pytest.raises(FrameError, match="not a frame"):
        read_frame(NoMore(struct.pack("<Q", length) + header))


def test_a_length_too_short_for_a_header_is_refused_and_nothing_more_is_read() -> None:
    for length, header_length in ((0, 0), (8, 0), (8, 1), (9, 2), (16, 2**63)):
        with pytest.raises(FrameError, match="not a frame"):
            read_frame(NoMore(struct.pack("<QQ", length, header_length) + b"{" * 40))


@pytest.mark.parametrize(
    "junk",
    [
        b"Traceback (most recent call last):\n  File ...",
        b"epoch 1/10 loss 0.123\n" * 40,
        b"\n",
        b"\x00" * 64,
        b"\xff" * 64,
        b'{"id": 1, "ok": true}\n',
        b"PK\x03\x04" + b"\x00" * 60,
    ],
    ids=["traceback", "log", "newline", "zeros", "ones", "json-lines", "zip"],
)
def test_junk_is_refused_and_shown(junk: bytes) -> None:
    with pytest.raises(FrameError, match="not a frame") as caught:
        read_frame(NoMore(junk))
    assert repr(junk[:8])[2:-1] in str(caught.value)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (safetensors_file(b"{}"), "no 'message'"),
        (safetensors_file(b'{"__metadata__": {}}'), "no 'message'"),
        (safetensors_file(b'{"__metadata__": {"other": "x"}}'), "no 'message'"),
        (safetensors_file(b'{"__metadata__": null}'), "not safetensors"),
        (safetensors_file(b'{"__metadata__": {"message": 3}}'), "not safetensors"),
        (safetensors_file(b'{"__metadata__": {"message": "{"}}'), "not safetensors"),
        (safetensors_file(b'{"__metadata__": {"message": "[]"}}'), "not a JSON object"),
        (safetensors_file(b'{"__metadata__": {"message": "null"}}'), "not a JSON object"),
        (safetensors_file(b'{"__metadata__": {"message": "3"}}'), "not a JSON object"),
        (safetensors_file(b'{"__metadata__": {"message": "\\"run\\""}}'), "not a JSON object"),
        (safetensors_file(b'{"__metadata__": {"message": "%s"}}' % (b"[" * 100_000)), "recursion"),
        (safetensors_file(b'{"__metadata__": {"message": "%s"}}' % (b"9" * 5000)), "digits"),
        (safetensors_file(b"[]"), "not safetensors"),
        (safetensors_file(b"{") + b"\xe9", "not safetensors"),
        (with_tensor("F32", [3], b"\x00" * 8), "not safetensors"),
        (with_tensor("F32", [2**62, 8], b"\x00" * 8), "not safetensors"),
        (with_tensor("F6_E2M3", [4], b"\x00" * 3), "'F6_E2M3'"),
        (with_tensor("F8_E4M3", [4], b"\x00" * 4), "'F8_E4M3'"),
        (b"", "not safetensors"),
        (b"short", "not safetensors"),
    ],
    ids=range(20),
)
def test_a_body_that_is_no_safetensors_with_a_message_is_refused(body: bytes, told: str) -> None:
    with pytest.raises(FrameError, match=told):
        decode(body)
    with pytest.raises(FrameError):
        read_frame(framed(body))


def test_a_refused_body_leaves_the_next_frame_readable() -> None:
    stream = io.BytesIO(framed(safetensors_file(b'{"__metadata__": {}}')).getvalue() + encode(MESSAGE))
    with pytest.raises(FrameError):
        read_frame(stream)
    assert read_frame(stream).message == MESSAGE


@repeatably
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_a_frame_error(data: bytes) -> None:
    for stream in (
        io.BytesIO(data),
        framed(data),
        framed(safetensors_file(data)),
        framed(safetensors_file(b"{" + data)),
    ):
        with suppress(FrameError):
            assert isinstance(read_frame(stream).message, dict)


@repeatably
@given(data=st.data())
def test_a_frame_with_any_bytes_changed_is_a_frame_or_a_frame_error(data: st.DataObject) -> None:
    whole = bytearray(encode(MESSAGE, {"x": np.arange(3.0), "mask": np.array([True, False])}))
    changes = data.draw(
        st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), min_size=1, max_size=4)
    )
    for at, value in changes:
        whole[at] = value
    with suppress(FrameError):
        assert isinstance(read_frame(io.BytesIO(bytes(whole))).message, dict)


@repeatably
@given(header=JSON, metadata=JSON, message=JSON, data=st.binary(max_size=16))
def test_any_json_in_the_header_is_a_frame_or_a_frame_error(
    header: Any, metadata: Any, message: Any, data: bytes
) -> None:
    entry = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
    for made in (
        header,
        {"__metadata__": metadata},
        {"__metadata__": {"message": message}},
        {"__metadata__": {"message": json.dumps(message)}, "x": entry},
    ):
        body = safetensors_file(json.dumps(made).encode(), data)
        with suppress(FrameError):
            assert isinstance(decode(body).message, dict)


def large_tensors() -> dict[str, np.ndarray[Any, Any]]:
    """Of several dtypes and layouts, one of them longer than a part, with names that JSON escapes."""
    draw = np.random.default_rng(0)
    return {
        "weight": draw.random((3, PART)),
        'a "quoted"\n\x7f name, é': draw.random((700, 300)).astype(np.float32).T,
        "mask": draw.random((40, 50)) < 0.5,
        "ids": np.arange(7),
        "nothing": np.empty((0, 3), np.float16),
        "number": np.array(0.25),
        "big-endian": np.arange(5, dtype=">f4"),
    }


def test_a_large_frame_has_the_bytes_that_safetensors_writes() -> None:
    tensors = large_tensors()
    contiguous = {name: np.ascontiguousarray(tensor).reshape(tensor.shape) for name, tensor in tensors.items()}
    assert sum(tensor.nbytes for tensor in tensors.values()) > LARGE
    for message in (MESSAGE, {"said": 'é "\u2028\\'}):
        body = safetensors.numpy.save(contiguous, metadata={"message": json.dumps(message)})
        assert encode(message, tensors) == struct.pack("<Q", len(body)) + body


def test_a_large_frame_comes_back_bit_for_bit() -> None:
    tensors = large_tensors()
    found = through(MESSAGE, tensors)
    assert found.message == MESSAGE
    assert found.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found.tensors[name].shape == tensor.shape
        assert found.tensors[name].tobytes() == tensor.astype(tensor.dtype.newbyteorder("=")).tobytes()
        assert found.tensors[name].flags.writeable


@pytest.mark.parametrize("rows", [1, 4], ids=["small", "large"])
def test_a_tensor_made_while_it_is_written_is_the_same_on_the_wire(rows: int) -> None:
    tensor = np.arange(rows * PART, dtype=np.float32).reshape(rows, PART)
    streamed = Streamed(tensor.dtype, tensor.shape, lambda: iter(np.array_split(tensor.reshape(-1), 7)))
    assert encode(MESSAGE, {"x": streamed, "one": np.ones(1)}) == encode(MESSAGE, {"x": tensor, "one": np.ones(1)})


def test_a_large_tensor_is_taken_part_by_part() -> None:
    tensors = large_tensors()
    asked: list[tuple[str, tuple[int, ...]]] = []
    parts: list[np.ndarray[Any, Any]] = []

    def receive(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        asked.append((name, shape))
        return (lambda part: parts.append(part.copy())) if name == "weight" else None

    found = read_frame(io.BytesIO(encode(MESSAGE, tensors)), receive)
    assert sorted(asked) == sorted((name, tensor.shape) for name, tensor in tensors.items())
    assert found.tensors.keys() == tensors.keys() - {"weight"}
    assert len(parts) == 3
    assert np.array_equal(np.concatenate(parts), tensors["weight"].reshape(-1))


def test_a_large_frame_cut_off_anywhere_says_how_far_it_came() -> None:
    whole = encode(MESSAGE, large_tensors())
    for length in (17, 18, 300, 5000, LARGE // 2, len(whole) - 1):
        with pytest.raises(FrameError, match=f"cut off after {length - 8} of {len(whole) - 8} bytes"):
            read_frame(io.BytesIO(whole[:length]))


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ({"x": {"dtype": "F32", "shape": [LARGE], "data_offsets": [0, 4 * LARGE - 4]}}, "'x' lies at"),
        ({"x": {"dtype": "F32", "shape": [LARGE - 1], "data_offsets": [4, 4 * LARGE]}}, "'x' lies at"),
        ({"x": {"dtype": "F32", "shape": [LARGE - 1], "data_offsets": [0, 4 * LARGE - 4]}}, "4194304 follow"),
        ({"x": {"dtype": "F4", "shape": [8 * LARGE], "data_offsets": [0, 4 * LARGE]}}, "numpy lacks: 'F4'"),
        ({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4 * LARGE]}}, r"shape \[-1\]"),
        ({"x": {"dtype": "F32", "shape": [True, LARGE], "data_offsets": [0, 4 * LARGE]}}, "shape"),
        ({"x": {"dtype": "F32", "shape": [LARGE], "data_offsets": [0]}}, "data_offsets"),
        ({"x": {"dtype": "F32", "shape": [LARGE]}}, "data_offsets None"),
        ({"x": 3}, "not safetensors"),
        ({}, "follow the header"),
    ],
    ids=range(10),
)
def test_a_large_frame_that_is_not_as_its_header_says_is_refused_before_it_is_read(entries: Any, told: str) -> None:
    header = json.dumps({"__metadata__": {"message": "{}"}, **entries}).encode()
    stream = framed(safetensors_file(header, b"\x00" * (4 * LARGE)))
    with pytest.raises(FrameError, match=told):
        read_frame(stream)
    assert stream.tell() == 16 + len(header)
