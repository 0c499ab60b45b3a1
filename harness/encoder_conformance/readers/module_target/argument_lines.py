"""The line of the user's source that reads an argument of the call: no graph has masks, and so none has their lines."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from encoder_conformance.protocol.module_description import argument_key

_CALLS = ("forward", "call", "__call__")
"""The methods by which PyTorch, Keras and JAX call a module."""


def line_of_argument(module: object, name: str) -> str:
    """`model.py:40`, the first line of a module's own call that reads this argument; "" where there is none, or its
    source is not to be had."""
    for method in (getattr(type(module), each, None) for each in _CALLS):
        if not inspect.isfunction(method) or name not in inspect.signature(method).parameters:
            continue
        found = inspect.unwrap(method)
        try:
            lines, first = inspect.getsourcelines(found)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError):
            return ""
        at = min(_read_at(tree, name), default=None)
        return "" if at is None else f"{Path(found.__code__.co_filename).name}:{first + at - 1}"
    return ""


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
