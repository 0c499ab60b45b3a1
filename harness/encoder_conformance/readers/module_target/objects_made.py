"""What a module takes for an argument that was left at None: an object of a class of its author's, or not."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any, get_args, get_type_hints

from encoder_conformance.readers.module_target.live import Feeds, LiveModule

_OF_ARRAYS = (
    "builtins",
    "torch",
    "numpy",
    "jax",
    "jaxlib",
    "tensorflow",
    "keras",
    "jaxtyping",
    "torchtyping",
    "typing",
)
"""Packages whose objects are arrays and numbers, or hold them."""


def class_in_place_of(name: str, module: LiveModule, feeds: Feeds) -> str:
    """The class of the object that stands in the place of the argument where the module's own function returns, called
    without it, as of `mask = mask or FullMask(n)`; else that by which the argument is annotated, as in
    `mask: FullMask | None`. "" where it is of no author's, or is not seen."""
    layer, found = next(iter(module.objects()), None), ""
    function = inspect.unwrap(getattr(type(layer), "forward", None) or type(layer).__call__)
    code, before = getattr(function, "__code__", None), sys.getprofile()

    def returned(frame: FrameType, event: str, argument: object) -> None:
        nonlocal found
        if event == "return" and frame.f_code is code:
            found = _of_its_author(type(frame.f_locals.get(name)))

    sys.setprofile(returned)
    try:
        module.run(feeds)
    finally:
        sys.setprofile(before)
    return found or _annotated(name, function)


def _annotated(name: str, function: Callable[..., Any]) -> str:
    with suppress(Exception):  # an annotation may name what is not there
        return next(filter(None, map(_of_its_author, _classes_in(get_type_hints(function).get(name)))), "")
    return ""


def _classes_in(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type):
        yield annotation
    for part in get_args(annotation):
        yield from _classes_in(part)


def _of_its_author(kind: type) -> str:
    return "" if kind.__module__.partition(".")[0] in _OF_ARRAYS else kind.__name__
