"""The lines of the user's source that read an argument of the call, or a part: no graph has masks, and of what is not
exported there is none."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType

from encoder_conformance.protocol.module_description import argument_key

_CALLS = ("forward", "call", "__call__")
"""The methods by which PyTorch, Keras and JAX call a module."""


def line_of_argument(module: object, name: str) -> str:
    """`model.py:40`, the first line of a module's own call that reads this argument, or else names it; "" where there
    is none, or its source is not to be had."""
    for method in _calls_of(module):
        if name in inspect.signature(method).parameters:
            return _first_line(method, lambda tree: [*_read_at(tree, name)] or [*_named_at(tree, name)])
    return ""


def line_of_part(module: object, name: str) -> str:
    """The first line of a module's own call that reads its part of this name; "" as above."""
    return next(filter(None, (_first_line(each, lambda tree: _held_at(tree, name)) for each in _calls_of(module))), "")


def _calls_of(module: object) -> Iterator[FunctionType]:
    methods = (getattr(type(module), each, None) for each in _CALLS)
    return (each for each in methods if inspect.isfunction(each))


def _first_line(method: FunctionType, lines_of: Callable[[ast.AST], Iterable[int]]) -> str:
    found = inspect.unwrap(method)
    try:
        lines, first = inspect.getsourcelines(found)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return ""
    at = min(lines_of(tree), default=None)
    return "" if at is None else f"{Path(found.__code__.co_filename).name}:{first + at - 1}"


def _held_at(tree: ast.AST, name: str) -> Iterator[int]:
    """The lines that read an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load):
            yield node.lineno


def _named_at(tree: ast.AST, name: str) -> Iterator[int]:
    """The lines that have it among the arguments."""
    yield from (node.lineno for node in ast.walk(tree) if isinstance(node, ast.arg) and node.arg == name)


def _read_at(tree: ast.AST, name: str) -> Iterator[int]:
    """The lines that read it, but for those that ask whether it is None."""
    asked = {id(node.left) for node in ast.walk(tree) if isinstance(node, ast.Compare) and _is_none(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and id(node) not in asked:
            yield node.lineno


def _is_none(compared: ast.Compare) -> bool:
    return any(isinstance(each, ast.Constant) and each.value is None for each in compared.comparators)


def lines_of_arguments(module: object, names: Iterable[str]) -> dict[str, str]:
    """Key of a description's lines → the line, of those arguments that have one."""
    found = {argument_key(name): line_of_argument(module, name) for name in names}
    return {key: line for key, line in found.items() if line}
