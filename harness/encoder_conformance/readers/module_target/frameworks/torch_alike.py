"""Whether two modules of PyTorch are one but for their numbers: the same classes, settings, hooks and shapes."""

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from types import MethodType
from typing import Any

import numpy as np
from torch import Tensor, nn

from encoder_conformance.readers.module_target.frameworks.torch_in_model import call_of

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_PLACE = re.compile(r"(^|_)(idx|index|id|number)$")
"""Names of what says which layer of a model it is."""


def are_alike(one: nn.Module, other: nn.Module) -> bool:
    calls = call_of(one), call_of(other)
    if None not in calls:
        if not _same_call(*calls):
            return False
        one, other = (call.layer for call in calls if call is not None)
    with suppress(RecursionError):  # a list that holds itself
        return _Comparison().same_modules(one, other)
    return False


def _same_call(one: Any, other: Any) -> bool:
    """Whether one model calls both with the same arguments beside x, as far as their names say. Where the model cannot
    be run, each is reached by itself."""
    names = ("x", "given", "masks", "by_model", "swapped", "free", "shape", "borrowed", "untrained", "formats")
    by_itself = _is_reached_by_itself(one) and _is_reached_by_itself(other)
    same_way = one.way == other.way or (by_itself and one.way.number == other.way.number)
    return one.model is other.model and same_way and all(getattr(one, name) == getattr(other, name) for name in names)


def _is_reached_by_itself(call: Any) -> bool:
    return bool(call.way.root == call.path)


class _Comparison:
    """Remembers the pairs of modules that it is within, which may hold themselves; numbers of two settings are often
    one object, and are compared each time."""

    def __init__(self) -> None:
        self._seen = set[tuple[int, int]]()

    def same_modules(self, one: nn.Module, other: nn.Module) -> bool:
        parts = dict(one.named_modules(remove_duplicate=False)), dict(other.named_modules(remove_duplicate=False))
        return list(parts[0]) == list(parts[1]) and all(
            self._same_part(parts[0][name], parts[1][name]) for name in parts[0]
        )

    def _same_part(self, one: nn.Module, other: nn.Module) -> bool:
        if type(one) is not type(other) or _tensors(one) != _tensors(other):
            return False
        mine, others = _settings(one), _settings(other)
        return mine.keys() == others.keys() and all(self._same(mine[name], others[name], name) for name in mine)

    def _same(self, one: Any, other: Any, name: str = "") -> bool:
        if one is other:
            return True
        if type(one) is not type(other):
            return False
        if type(one) is int and _PLACE.search(name):
            return True
        if isinstance(one, Tensor):
            return (one.shape, one.dtype) == (other.shape, other.dtype)
        if isinstance(one, np.ndarray):
            return np.array_equal(one, other)
        if isinstance(one, nn.Module):
            pair = id(one), id(other)
            known = pair in self._seen
            self._seen.add(pair)
            return known or self.same_modules(one, other)
        return self._same_values(one, other)

    def _same_values(self, one: Any, other: Any) -> bool:
        if isinstance(one, Mapping):
            return list(one) == list(other) and all(self._same(one[key], other[key], str(key)) for key in one)
        if isinstance(one, (list, tuple)):
            return len(one) == len(other) and all(map(self._same, one, other))
        if isinstance(one, partial):
            return self._same((one.func, one.args, one.keywords), (other.func, other.args, other.keywords))
        if isinstance(one, MethodType):
            return one.__func__ is other.__func__ and self._same(one.__self__, other.__self__)
        with suppress(Exception):
            return bool(one == other)
        return False


def _settings(module: nn.Module) -> dict[str, Any]:
    """What its class sets."""
    return {name: value for name, value in vars(module).items() if name not in _OF_EVERY_MODULE}


def _tensors(module: nn.Module) -> Any:
    """The shapes and formats of its own parameters and buffers, its hooks without their numbers, and whether it is in
    training."""
    held = {**module._parameters, **module._buffers}
    shapes = {
        name: value is not None and (tuple(value.shape), value.dtype, value.requires_grad)
        for name, value in held.items()
    }
    hooks = {name: list(value.values()) for name, value in vars(module).items() if "hook" in name and value}
    return shapes, hooks, module.training
