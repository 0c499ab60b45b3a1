"""Finds out what a module takes out of its one argument: a mapping, an object with attributes, or a tuple."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.calling import may_be_mask
from encoder_conformance.readers.module_target.forms_of_x import Arrays, HeldTogether
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array

_OF_NUMPY = "names", "formats"
"""What NumPy asks a mapping for that it takes for the description of a dtype: JAX adds it to an array."""
_USUAL_IN_TUPLE, _MOST_IN_TUPLE = 2, 3
_UNPACKED = re.compile(r"values to unpack \(expected (at least )?(\d+)")
"""`at least`, as of `x, *others = inputs`."""


class ReadOf(dict[str, Any]):
    """A mapping of nothing, which notes what it is asked for, and gives x for the first that may be x. `attributes`:
    whether they may be what it is asked for."""

    def __init__(self, x: Any, *, attributes: bool) -> None:
        super().__init__()
        self._x, self._attributes = x, attributes
        self._places = list[int]()
        self._size = 0
        self.needed: list[str] = []
        self.optional: list[str] = []

    def __getitem__(self, key: object) -> Any:
        if isinstance(key, int) and 0 <= key < _MOST_IN_TUPLE:
            self._places.append(key)
            return None if key else self._x
        if not isinstance(key, str):
            raise TypeError("x was looked for in a mapping")
        if key not in self.needed:
            self.needed.append(key)
        return None if may_be_mask(key) else self._x

    def __len__(self) -> int:
        self._size = _USUAL_IN_TUPLE  # as of `inputs[1] if len(inputs) > 1 else None`
        return self._size

    def get(self, key: str, default: Any = None) -> Any:
        self.optional.append(key)
        return default

    def __contains__(self, key: object) -> bool:
        self.optional.append(str(key))
        return False

    def __getattr__(self, name: str) -> Any:
        # x itself is asked for its shape, and is no mapping
        if name.startswith("_") or not self._attributes or hasattr(self._x, name):
            raise AttributeError(name)
        return self[name]

    def _replace(self, **named: Any) -> HeldTogether:
        return HeldTogether(named)

    def keys_for(self, known: Arrangement) -> Arrangement | None:
        """How a module that asked so is called; None where it asked for nothing that may be x."""
        size = max((self._size, *(place + 1 for place in self._places)))
        if self._places and size > 1:
            return _in_a_tuple(size, known)
        first = next((key for key in self.needed if not may_be_mask(key)), None)
        if first is None or {*_OF_NUMPY} <= {*self.needed}:
            return None
        others = [key for key in dict.fromkeys((*self.needed, *self.optional)) if key != first]
        return replace(known, keys=(first, *others), offered=tuple(key for key in others if may_be_mask(key)))


@dataclass(frozen=True)
class _Listening(Arrangement):
    """Calls a module with nothing but such a mapping."""

    heard: list[ReadOf] = field(default_factory=list, compare=False)
    attributes: bool = True

    def call(
        self, module: Callable[..., Any], x_name: str, x: Any, given: Mapping[str, Any], arrays: Arrays
    ) -> tuple[Any, Any]:
        asked = ReadOf(x, attributes=self.attributes)
        self.heard.append(asked)
        return module(asked, **given), x


def bundled(module: LiveModule, x: Array) -> Arrangement | None:
    """How it is called where its one argument holds x [B, S, D] and what is beside; None where it is none such."""
    known = module.signature.arrangement
    listening = _Listening(beside=known.beside, attributes=module.may_take_objects)
    if (other := module.arranged(listening)) is None:
        return None
    try:
        other.run({"x": x})
    except ExecutionError as error:
        if found := unpacked(str(error), known):
            spread = replace(found, spread=True)  # of `*inputs`, which are unpacked in the same way
            other = module.arranged(spread)
            return spread if other is not None and other.takes(x) else found
    return listening.heard[0].keys_for(known) if listening.heard else None


def unpacked(problem: str, known: Arrangement) -> Arrangement | None:
    """How a module is called that takes x out of a tuple, as what it raises for a mapping of nothing says; None where
    it is none such."""
    if (found := _UNPACKED.search(problem)) is None:
        return None
    size = max(int(found[2]), _USUAL_IN_TUPLE if found[1] else 0)
    return _in_a_tuple(size, known) if size <= _MOST_IN_TUPLE else None


def _in_a_tuple(size: int, known: Arrangement) -> Arrangement:
    keys = tuple(map(str, range(size)))
    return replace(known, keys=keys, offered=keys[1:2])
