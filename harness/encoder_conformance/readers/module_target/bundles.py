"""Finds out what a module takes out of its one argument: a mapping, an object with attributes, or a tuple."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.calling import may_be_mask
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array

_UNPACKED = re.compile(r"values to unpack \(expected (\d+)")


class _Asked(dict[str, Any]):
    """A mapping of nothing, which notes what it is asked for, and gives x for the first that may be x."""

    def __init__(self, x: Any) -> None:
        super().__init__()
        self._x = x
        self.needed: list[str] = []
        self.optional: list[str] = []

    def __getitem__(self, key: str) -> Any:
        if not isinstance(key, str):
            raise TypeError("x was looked for in a mapping")
        if key not in self.needed:
            self.needed.append(key)
        return None if may_be_mask(key) else self._x

    def get(self, key: str, default: Any = None) -> Any:
        self.optional.append(key)
        return default

    def __contains__(self, key: object) -> bool:
        self.optional.append(str(key))
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or hasattr(self._x, name):  # x itself is asked for its shape, and is no mapping
            raise AttributeError(name)
        return self[name]


@dataclass(frozen=True)
class _Listening(Arrangement):
    """Calls a module with nothing but such a mapping."""

    heard: list[_Asked] = field(default_factory=list, compare=False)

    def call(
        self, module: Callable[..., Any], x_name: str, x: Any, given: Mapping[str, Any], tensor: Callable[..., Any]
    ) -> tuple[Any, Any]:
        asked = _Asked(x)
        self.heard.append(asked)
        return module(asked, **given), x


def bundled(module: LiveModule, x: Array) -> Arrangement | None:
    """How it is called where its one argument holds x [B, S, D] and what is beside; None where it is none such."""
    known = module.signature.arrangement
    listening = _Listening(beside=known.beside)
    if (other := module.arranged(listening)) is None:
        return None
    try:
        other.run({"x": x})
    except ExecutionError as error:
        if found := _UNPACKED.search(str(error)):
            keys = tuple(str(place) for place in range(int(found[1])))
            return replace(known, keys=keys, offered=keys[1:2]) if len(keys) <= _MOST_IN_TUPLE else None
    if not listening.heard or not listening.heard[0].needed:
        return None
    asked = listening.heard[0]
    first = next((key for key in asked.needed if not may_be_mask(key)), None)
    if first is None:
        return None
    others = [key for key in dict.fromkeys((*asked.needed, *asked.optional)) if key != first]
    return replace(known, keys=(first, *others), offered=tuple(key for key in others if may_be_mask(key)))


_MOST_IN_TUPLE = 3
