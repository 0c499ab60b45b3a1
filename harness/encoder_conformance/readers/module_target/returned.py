"""The tensor of the shape of x in what a module returns."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from typing import Any

from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError

_LISTED: ContextVar[list[int] | None] = ContextVar("listed", default=None)


class OtherShape(ExecutionError):
    """A module answered, and nothing in its answer has the shape of x. `shapes`: what has one."""

    def __init__(self, message: str, shapes: tuple[tuple[int, ...], ...] = ()) -> None:
        super().__init__(message)
        self.shapes = shapes


def like_x(answer: Any, x: Any, is_tensor: Callable[[Any], bool]) -> Any:
    """The first tensor of the shape of x; of a list of nothing but such, as of all layers of a stack, the last.

    Raises OtherShape.
    """

    def is_alike(value: Any) -> bool:
        return is_tensor(value) and _may_be(tuple(value.shape), tuple(x.shape)) and not _is_whole(value)

    found = [value for value in leaves(_of_the_last(answer, is_alike)) if is_tensor(value)]
    for value in found:
        if is_alike(value):
            return value
    shapes = tuple(tuple(int(size) for size in value.shape) for value in found)
    said = ", ".join(str(list(shape)) for shape in shapes) or type(answer).__name__
    raise OtherShape(f"it returns {said}, and x is {list(x.shape)}", shapes)


def _is_whole(value: Any) -> bool:
    """Whether it is of truths or of whole numbers, as a mask [batch, sequence, sequence] that is handed on."""
    return any(word in str(value.dtype) for word in ("bool", "int"))


def _may_be(shape: tuple[int | None, ...], due: tuple[int | None, ...]) -> bool:
    """Whether a shape is the one that is due; a layer of Keras may say of its symbol that any number stands there."""
    return len(shape) == len(due) and all(size in (None, other) for size, other in zip(shape, due, strict=True))


def _of_the_last(answer: Any, is_alike: Callable[[Any], bool]) -> Any:
    """The answer, with the last tensor alone in the place of such a list."""
    if isinstance(answer, tuple):
        return tuple(_of_the_last(each, is_alike) for each in answer)
    if not isinstance(answer, list) or len(answer) < 2 or not all(map(is_alike, answer)):
        return answer
    if (noted := _LISTED.get()) is not None:
        noted.append(len(answer))
    return answer[-1]


@contextmanager
def lists_noted() -> Generator[list[int]]:
    """The lengths of the lists of which the last tensor is taken; nothing of a call whose program is kept."""
    noted: list[int] = []
    token = _LISTED.set(noted)
    try:
        yield noted
    finally:
        _LISTED.reset(token)


def leaves(answer: Any) -> Iterator[Any]:
    """The values in tuples, lists and mappings, in order."""
    if isinstance(answer, Mapping):
        for value in answer.values():
            yield from leaves(value)
    elif isinstance(answer, (tuple, list)):
        for value in answer:
            yield from leaves(value)
    elif is_dataclass(answer) and not isinstance(answer, type):
        yield from leaves([getattr(answer, each.name) for each in fields(answer)])
    else:
        yield answer
