"""Keeps how a module was made beside it: one that a call builds is tried on others, made in the same way."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

_MAKERS: WeakKeyDictionary[Any, Callable[[], Any]] = WeakKeyDictionary()


def keep_maker(module: Any, maker: Callable[[], Any]) -> None:
    with suppress(TypeError):  # a pair of a module and its variables is held by nobody
        _MAKERS[module] = maker


def made_again(module: Any) -> Any:
    """Another one of its class, as it was made. Raises LookupError where it is not known how."""
    if module not in _MAKERS or type(made := _MAKERS[module]()) is not type(module):
        raise LookupError
    return made
