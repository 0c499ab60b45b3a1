"""Recalls results of earlier plays of one case: a hypothesis changes a step or two, and all before them is the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

Found = TypeVar("Found")
Key = tuple[object, ...]


class Recall:
    """Results by the step and the identity of its operands.

    The operands are kept alive, so that no other array takes their place.
    """

    def __init__(self, most_bytes: int) -> None:
        self._room, self._found = most_bytes, dict[Key, tuple[Any, Any]]()

    @property
    def has_room(self) -> bool:
        return self._room > 0

    def get(
        self,
        step: Callable[..., Found],
        operands: Sequence[Any],
        choices: Mapping[str, object],
        compute: Callable[[], Found],
        *,
        keep: bool,
    ) -> Found:
        """The result of `compute`, which is kept for later calls if `keep` and while there is room."""
        key: Key = (step, *map(_identity, operands), *((name, _identity(value)) for name, value in choices.items()))
        if key in self._found:
            found: Found = self._found[key][0]
            return found
        result = compute()
        if keep and self._room > 0:
            self._room -= sum(array.nbytes for array in _arrays(result))
            self._found[key] = result, (operands, choices)
        return result


def _identity(value: Any) -> object:
    """An array by itself, whatever numbers it holds; anything else by what it is."""
    if isinstance(value, np.ndarray):
        return id(value)
    if is_dataclass(value):
        return tuple(_identity(getattr(value, each.name)) for each in fields(value))
    return value


def _arrays(result: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(result, np.ndarray):
        return [result]
    if is_dataclass(result):
        return [array for each in fields(result) for array in _arrays(getattr(result, each.name))]
    return [array for each in result for array in _arrays(each)] if isinstance(result, tuple) else []
