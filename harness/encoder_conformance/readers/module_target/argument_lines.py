"""The lines of the user's source that read an argument of the call, or a part: no graph has masks, and of what is not
exported there is none."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from types import FunctionType, MethodType

from encoder_conformance.protocol.module_description import argument_key, fill_key
from encoder_conformance.readers.module_target.errors import is_installed

_CALLS = ("forward", "call", "__call__")
"""The methods by which PyTorch, Keras and JAX call a module."""
_FILLS, _HIDES = ("masked_fill", "masked_fill_"), 1e3
"""Methods that fill scores, and the least number of those that hide where it is taken from a score."""
_LinesOf = Callable[[ast.AST, str], Iterable[int]]
"""(function, name of its argument) → lines of it."""


def line_of_argument(module: object, name: str) -> str:
    """`model.py:40`, the first line of a module's own call that reads this argument, or else names it, or of the part
    or function that it is handed to there; "" where there is none, or its source is not to be had. A line that gives
    it another shape or format alone, under its own name, is passed over."""
    methods = (each for each in calls_of(module) if name in inspect.signature(each).parameters)
    return next((_line_in(each, module, name, (), _used_at) for each in methods), "")


def _line_of_fill(module: object, name: str) -> str:
    """The line that has the number by which this mask hides, in what reads it as above; "" where none is known."""
    methods = (each for each in calls_of(module) if name in inspect.signature(each).parameters)
    return next((_line_in(each, module, name, (), _filled_at) for each in methods), "")


def _line_in(
    method: FunctionType, module: object, name: str, callers: tuple[FunctionType, ...], lines_of: _LinesOf
) -> str:
    """The same of a method of a module, or of a function that one of the `callers` hands it to: the first of
    `lines_of` it and the name."""
    if (tree := _tree_of(method)) is None or method in callers:
        return ""
    first = _first_used(tree, name)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and call.lineno <= first <= (call.end_lineno or 0):
            for each, owner, given in _handed_to(call, module, method, name):
                if found := _line_in(each, owner, given, (*callers, method), lines_of):
                    return found
    return _first_line(method, lambda tree: lines_of(tree, name))


def _used_at(tree: ast.AST, name: str) -> Iterable[int]:
    first = _first_used(tree, name)
    return [first] if first else _named_at(tree, name)


def _filled_at(tree: ast.AST, name: str) -> Iterable[int]:
    """Lines that fill scores, or have a number that hides: those that read the name; or else the one there is."""
    filling = [node for node in ast.walk(tree) if isinstance(node, ast.expr) and _fills(node)]
    named = [node.lineno for node in filling if any(_is_named(each, name) for each in ast.walk(node))]
    lines = {node.lineno for node in filling}
    return named or (lines if len(lines) == 1 else ())


def _fills(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _FILLS
    return isinstance(node, ast.Constant) and isinstance(node.value, float | int) and abs(node.value) >= _HIDES


def _handed_to(
    call: ast.Call, module: object, method: FunctionType, name: str
) -> Iterator[tuple[FunctionType, object, str]]:
    """What is called with the argument, of the user's own: a method of a part, one of the module itself, or a function;
    whose `self` it has, and what it calls the argument."""
    part, owner, methods = _part_called(call, module, method), module, list[FunctionType]()
    if isinstance(part, FunctionType):
        methods = [part]
    elif isinstance(part, MethodType) and isinstance(part.__func__, FunctionType):
        methods = [part.__func__]
    else:
        owner, methods = part, [*calls_of(part)]
    for each in methods:
        if _is_beside(_folder_of(each), _folder_of(method)):
            taken = [*inspect.signature(each).parameters.values()][0 if each is part else 1 :]
            yield from ((each, owner, given) for given in _given_as(call, taken, name))


def _is_beside(folder: Path, own: Path) -> bool:
    """Whether it is the module's own folder, or both are the user's, as `layers/` beside `blocks/` is."""
    return folder == own or not (is_installed(folder) or is_installed(own))


def _folder_of(method: FunctionType) -> Path:
    return Path(inspect.unwrap(method).__code__.co_filename).parent


def _part_called(call: ast.Call, module: object, method: FunctionType) -> object:
    """The part of `self.attention(…)` or `self.attention.forward(…)`, the first of `self.heads[i](…)`, or its class
    where that comes into being in a call, as in Flax Linen: of `Attention(…)(…)`, too; or the method of
    `self.attend(…)`, or the function of `attend(…)`. None of another call."""
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
    """The class of `Class(…)`, or the function of `name` or `Class.name`, by the names of the function that has it."""
    named = made.func if isinstance(made, ast.Call) else made
    owner = named.value if isinstance(named, ast.Attribute) and named is made else named
    found = inspect.unwrap(method).__globals__.get(owner.id) if isinstance(owner, ast.Name) else None
    found = getattr(found, named.attr, None) if isinstance(named, ast.Attribute) and found is not None else found
    return found if isinstance(made, ast.Call) or inspect.isfunction(found) else None


def _given_as(call: ast.Call, taken: Sequence[inspect.Parameter], name: str) -> Iterator[str]:
    """What a method or function, with these parameters, calls the argument that it is handed as it is. What stands
    behind `*several` is the last of those that it needs."""
    yield from (each.arg for each in call.keywords if each.arg and _is_named(each.value, name))
    several = next((at for at, each in enumerate(call.args) if isinstance(each, ast.Starred)), len(call.args))
    needed = [each for each in taken if each.default is each.empty]
    before, behind = call.args[:several], call.args[several + 1 :]
    pairs = [*zip(taken, before, strict=False), *zip(reversed(needed), reversed(behind), strict=False)]
    yield from (own.name for own, each in pairs if _is_named(each, name))


def _is_named(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def line_of_part(module: object, name: str) -> str:
    """The first line of a module's own call that reads its part of this name, or else of another of its methods, in
    their order; "" as above."""
    kinds = (kind for kind in _kind_of(module).__mro__ if kind.__module__ == _kind_of(module).__module__)
    others = (each for kind in kinds for each in vars(kind).values() if inspect.isfunction(each))
    methods = chain(calls_of(module), (each for each in others if each.__name__ != "__init__"))
    return next(filter(None, (_first_line(each, lambda tree: _held_at(tree, name)) for each in methods)), "")


def calls_of(module: object) -> Iterator[FunctionType]:
    """The methods by which its framework calls it."""
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


_RESHAPES = (
    "unsqueeze",
    "squeeze",
    "view",
    "reshape",
    "expand",
    "expand_as",
    "repeat",
    "transpose",
    "permute",
    "to",
    "type",
)
"""Methods that give a mask another shape or format, and leave what it says."""


def _first_used(tree: ast.AST, name: str) -> int:
    """The first line that reads it and does more than give it another shape or format, or else the first that reads it;
    0 for none."""
    read = {*_read_at(tree, name)}
    shaped = {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_named(node.targets[0], name) and _is_reshaped(node.value, name)
    }
    return min(read - shaped or read, default=0)


def _is_reshaped(made: ast.AST, name: str) -> bool:
    """Whether it is this name with other shapes alone, as `mask.unsqueeze(1)` and `mask[:, None]` are."""
    while not _is_named(made, name):
        if isinstance(made, ast.Subscript):
            made = made.value
        elif isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in _RESHAPES:
            made = made.func.value
        else:
            return False
    return True


def _is_none(compared: ast.Compare) -> bool:
    return any(isinstance(each, ast.Constant) and each.value is None for each in compared.comparators)


def lines_of_arguments(module: object, names: Iterable[str]) -> dict[str, str]:
    """Key of a description's lines → the line, of those arguments that have one."""
    found: dict[str, str] = {}
    for name in names:
        found |= {argument_key(name): line_of_argument(module, name), fill_key(name): _line_of_fill(module, name)}
    return {key: line for key, line in found.items() if line}
