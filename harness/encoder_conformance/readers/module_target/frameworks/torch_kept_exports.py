"""Exports that earlier commands made: an exporter takes three seconds, and most modules are checked more than once.

A module's graph is known by one call of it: which operators are called, of what, with which constants, at which
lines of source, and what of it is given. What is exported of two modules that are one in that, is one.
"""

import hashlib
import linecache
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import onnx
from google.protobuf.message import DecodeError
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from encoder_conformance.impls.bases.torch_module.tensors import to_numpy
from encoder_conformance.platform.kept import KeptFiles, digest_of_code
from encoder_conformance.readers.module_target.frameworks.torch_dispatch import SeesOperators

EXPORTS = KeptFiles("exports", room=256 << 20)
_AT_MOST = 32 << 20
"""Bytes of one export: a layer of 768 features has 28 million."""
_MADE_BY = ("torch", "onnx", "onnxscript", "onnx_ir", "numpy")


class Calls(SeesOperators):
    """The digest of the operators that are called.

    A tensor is known by the call that made it, and one that was not made by a call by its numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._digest = hashlib.sha256()
        self._made: dict[int, tuple[int, Tensor]] = {}
        """By a tensor's id; the tensor is kept, so that no other has that."""
        self._number = 0
        self._entered_in: CodeType | None = None

    def __enter__(self) -> Self:
        self._entered_in = sys._getframe(1).f_code
        super().__enter__()
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_map(self._told, (args, kwargs or {}))
        self._digest.update(repr((str(func), given, list(self._lines(sys._getframe(1))))).encode())
        answer = func(*args, **(kwargs or {}))
        tree_map(self._note, answer)
        return answer

    def _told(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in self._made:
            content = hashlib.sha256(to_numpy(value.detach()).tobytes()).hexdigest()
            return content, tuple(value.shape), str(value.dtype)
        return self._made[id(value)][0]

    def _note(self, value: Any) -> None:
        if isinstance(value, Tensor):
            self._number += 1
            self._made[id(value)] = self._number, value

    def _lines(self, frame: FrameType | None) -> Iterator[tuple[str, int, str]]:
        """The lines of source inside this mode that lead to a call, the innermost first."""
        while frame is not None and frame.f_code is not self._entered_in:
            name = frame.f_code.co_filename
            yield name, frame.f_lineno, linecache.getline(name, frame.f_lineno)
            frame = frame.f_back

    def give(self, output: Any) -> None:
        """What the call gave: of the same operators, any result may be it."""
        self._digest.update(repr(tree_map(self._told, output)).encode())

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def recalled_or(
    export: Callable[[], onnx.ModelProto], module: nn.Module, calls: Calls | None, **choices: object
) -> onnx.ModelProto:
    """The export that an earlier command kept of a module that made these calls; else that of `export`, kept."""
    if calls is None:
        return export()
    key = [calls.hexdigest(), [*dict(module.named_parameters())], [*dict(module.named_buffers())], choices, _made_by()]
    if (content := EXPORTS.get(key)) is not None:
        with suppress(DecodeError):
            return onnx.load_from_string(content)
    model = export()
    if model.ByteSize() <= _AT_MOST:
        EXPORTS.put(key, model.SerializeToString())
        EXPORTS.forget_oldest()
    return model


def _made_by() -> list[object]:
    """The program that exports, the versions of what it does that with, and Python's."""
    found = list[object]([digest_of_code(Path(__file__).parents[1]), platform.python_version()])
    for name in _MADE_BY:
        with suppress(PackageNotFoundError):
            found.append(version(name))
    return found
