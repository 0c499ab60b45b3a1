"""What a module's graph is known by: one call of it.

Which operators are called, of what, with which constants, at which lines of source, and what of it is given. What is
exported of two modules that are one in that, is one.
"""

import hashlib
import linecache
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, Self

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from encoder_conformance.impls.bases.torch_module.tensors import to_numpy
from encoder_conformance.readers.module_target.frameworks.torch_dispatch import SeesOperators

MADE_BY = ("torch", "onnx", "onnxscript", "onnx_ir", "numpy")
"""The distributions that make an export of PyTorch."""


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


def key_of(module: nn.Module, calls: Calls) -> list[object]:
    """What a module that makes these calls is known by, with the names of what it holds."""
    return [calls.hexdigest(), [*dict(module.named_parameters())], [*dict(module.named_buffers())]]
