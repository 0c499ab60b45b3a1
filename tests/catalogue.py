"""One test of a property of everything in a catalogue: it tries all, and names each element that fails."""

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest


def of_every(*axes: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Make of a property one test of all combinations of the axes' elements, which are its arguments."""

    def of_all(holds: Callable[..., None]) -> Callable[[], None]:
        elements = [*product(*map(list, axes))]

        def test() -> None:
            assert elements, "there is nothing to look at"
            failed = [f"{_label(each)}: {problem}" for each in elements if (problem := _problem(holds, each))]
            assert not failed, f"{len(failed)} of {len(elements)} fail\n" + "\n".join(failed)

        test.__name__, test.__doc__, test.__module__ = holds.__name__, holds.__doc__, holds.__module__
        return test

    return of_all


def _problem(holds: Callable[..., None], element: tuple[Any, ...]) -> str:
    try:
        holds(*element)
    except (Exception, pytest.fail.Exception) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _label(element: tuple[Any, ...]) -> str:
    return ", ".join(map(_name, element))


def _name(argument: object) -> str:
    """A case's or a layer's id, a vector's or a function's name, or the value itself."""
    if isinstance(argument, dict):
        return ascii(argument["name"])
    names = (getattr(argument, key, None) for key in ("id", "layer", "__name__"))
    return next((str(name) for name in names if name is not None), ascii(argument))
