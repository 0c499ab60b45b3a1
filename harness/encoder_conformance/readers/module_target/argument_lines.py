"""The lines of the user's source that read an argument of the call, or a part: no graph has masks, and of what is not
exported there is none."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType

from encoder_conformance.protocol.module_description import argument_key
from encoder_conformance.readers.module_target.errors import is_installed

_CALLS = ("forward", "call", "__call__")
"""The methods by which PyTorch, Keras and JAX call a module."""


def line_of_argument(module: object, name: str) -> str:
    """`model.py:40`, the first line of a module's own call that reads this argument, or else names it, or of the part
    that it is handed to there; "" where there is none, or its source is not to be had."""
    for method in _calls_of(module):
        if name in inspect.signature(method).parameters:
            own = _first_line(method, lambda tree: [*_read_at(tree, name)] or [*_named_at(tree, name)])
            return next(filter(None, _of_parts(module, method, name)), own)
    return ""


def _of_parts(module: object, method: FunctionType, name: str) -> Iterator[str]:
    """The line in a part beside the module that is the first to read the argument, and is called with it."""
    if (tree := _tree_of(method)) is None:
        return
    first = min(_read_at(tree, name), default=0)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and call.lineno <= first <= (call.end_lineno or 0):
            part = _part_called(call, module, method)
            beside = (each for each in _calls_of(part) if _is_beside(_folder_of(each), _folder_of(method)))
            yield from (line_of_argument(part, given) for each in beside for given in _given_as(call, each, name))


def _is_beside(folder: Path, own: Path) -> bool:
    """Whether it is the module's own folder, or both are the user's, as `layers/` beside `blocks/` is."""
    return folder == own or not (is_installed(folder) or is_installed(own))


def _folder_of(method: FunctionType) -> Path:
    return Path(inspect.unwrap(method).__code__.co_filename).parent


def _part_called(call: ast.Call, module: object, method: FunctionType) -> object:
    """The part of `self.attention(…)` or `self.attention.forward(…)`, the first of `self.heads[i](…)`, or its class
    where that comes into being in a call, as in Flax Linen: of `Attention(…)(…)`, too. None of another call."""
    made = call.func
    if isinstance(made, ast.Attribute) and made.attr in _CALLS and not isinstance(made.value, ast.Name):
        made = made.value
    is_one_of = isinstance(made, ast.Subscript)
    made = made.value if isinstance(made, ast.Subscript) else made
    if isinstance(made, ast.Attribute) and isinstance(made.value, ast.Name) and made.value.id == "self":
        part = getattr(module, made.attr, None)
        if is_one_of:
            return next(iter(part), None) if isinstance(part, Iterable) else None
        return _made_in_setup(module, made.attr) if part is None else part
    return _class_named(made, method)


def _made_in_setup(module: object, name: str) -> object:
    """The class of `self.name = Class(…)` in a module's `setup`; None where there is no such line."""
    setup = getattr(_kind_of(module), "setup", None)
    if not inspect.isfunction(setup) or (tree := _tree_of(setup)) is None:
        return None
    made = (node for node in ast.walk(tree) if isinstance(node, ast.Assign))
    found = (
        each.value for each in made if any(isinstance(to, ast.Attribute) and to.attr == name for to in each.targets)
    )
    return next((_class_named(each, setup) for each in found), None)


def _class_named(made: ast.AST, method: FunctionType) -> object:
    """The class of `Class(…)`, by the names of the function that has it."""
    named = made.func if isinstance(made, ast.Call) else None
    return inspect.unwrap(method).__globals__.get(named.id) if isinstance(named, ast.Name) else None


def _given_as(call: ast.Call, method: FunctionType, name: str) -> Iterator[str]:
    """What a part's method calls the argument that it is handed as it is."""
    yield from (each.arg for each in call.keywords if each.arg and _is_named(each.value, name))
    names = [*inspect.signature(method).parameters][1:]
    yield from (own for own, each in zip(names, call.args, strict=False) if _is_named(each, name))


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def line_of_part(module: object, name: str) -> str:
    """The first line of a module's own call that reads its part of this name; "" as above."""
    return next(filter(None, (_first_line(each, lambda tree: _held_at(tree, name)) for each in _calls_of(module))), "")


def _calls_of(module: object) -> Iterator[FunctionType]:
    methods = (getattr(_kind_of(module), each, None) for each in _CALLS)
    return (each for each in methods if inspect.isfunction(each))


def _kind_of(module: object) -> type:
    return module if isinstance(module, type) else type(module)


def _first_line(method: FunctionType, lines_of: Callable[[ast.AST], Iterable[int]]) -> str:
    found, tree = inspect.unwrap(method), _tree_of(method)
    at = None if tree is None else min(lines_of(tree), default=None)
    return "" if at is None else f"{Path(found.__code__.co_filename).name}:{found.__code__.co_firstlineno + at - 1}"


def _tree_of(method: FunctionType) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(method))))
    except (OSError, TypeError, SyntaxError):
        return None


def _held_at(tree: ast.AST, name: str) -> Iterator[int]:
    """The lines that read an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load):
            yield node.lineno


def _named_at(tree: ast.AST, name: str) -> Iterator[int]:
    """The lines that have it among the arguments."""
    yield from (node.lineno for node in ast.walk(tree) if isinstance(node, ast.arg) and node.arg == name)


def _read_at(tree: ast.AST, name: str) -> Iterator[int]:
    """The lines that read it, but for those that ask whether it is None, or assert something of it."""
    asked = {id(node.left) for node in ast.walk(tree) if isinstance(node, ast.Compare) and _is_none(node)}
    asserted = (each for node in ast.walk(tree) if isinstance(node, ast.Assert) for each in ast.walk(node.test))
    asked |= {id(each) for each in asserted}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and id(node) not in asked:
            yield node.lineno


def _is_none(compared: ast.Compare) -> bool:
    return any(isinstance(each, ast.Constant) and each.value is None for each in compared.comparators)


def lines_of_arguments(module: object, names: Iterable[str]) -> dict[str, str]:
    """Key of a description's lines → the line, of those arguments that have one."""
    found = {argument_key(name): line_of_argument(module, name) for name in names}
    return {key: line for key, line in found.items() if line}
