"""A function in which two arrays meet says their axes: by their types (`spec/axes.py`), or in its docstring."""

import ast
import re
from collections.abc import Iterator
from typing import Annotated, get_origin

from encoder_conformance.platform.paths import PACKAGE
from encoder_conformance.spec import axes

ROOMS = ("oracle", "spec", "judging", "diagnosis", "blackbox", "commands/inspect", "readers")
WITH_AXES = {name for name, alias in vars(axes).items() if get_origin(alias) is Annotated}
ARRAYS = WITH_AXES | {"Array", "Bools", "Floats", "Floating", "Indices", "Masks", "NDArray", "ndarray"}
_MAPPINGS = {"Mapping", "dict", "Callable", "list"}
"""What has arrays by name, or one by one, each of a shape of its own."""
_SHAPE = re.compile(r"\[[^\]]+\]|one shape|shape of")


def types_of_arrays(function: ast.FunctionDef) -> list[ast.expr]:
    """The annotations of arguments and result that are arrays, alone or in a tuple or union."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    annotations = [*(argument.annotation for argument in arguments), function.returns]
    return [each for each in annotations if each is not None and ARRAYS & set(_names(each))]


def _names(annotation: ast.expr) -> Iterator[str]:
    """The types that an annotation is made of, but for those inside a mapping."""
    match annotation:
        case ast.Subscript(value=ast.Name(id=name)) if name in _MAPPINGS:
            return
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case _:
            for child in ast.iter_child_nodes(annotation):
                if isinstance(child, ast.expr):
                    yield from _names(child)


def says_axes(annotation: ast.expr) -> bool:
    return bool({*WITH_AXES, "Annotated"} & set(_names(annotation)))


def without_axes(tree: ast.Module) -> Iterator[str]:
    """The functions with two or more arrays, of which one says no axes."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            arrays = types_of_arrays(function)
            told = all(map(says_axes, arrays)) or _SHAPE.search(ast.get_docstring(function) or "")
            if len(arrays) > 1 and not told:
                yield f"{function.name}, line {function.lineno}"


def test_where_two_arrays_meet_their_axes_are_said() -> None:
    folders = [PACKAGE / room for room in ROOMS]
    wrong = [
        f"{path.relative_to(folder.parent)}: {function}"
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        for function in without_axes(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not wrong, "\n".join(wrong)


def test_a_function_without_axes_is_found() -> None:
    bare = "def f(x: Array, y: Array) -> float: ..."
    assert [*without_axes(ast.parse(bare))] == ["f, line 1"]
    assert not [*without_axes(ast.parse(bare.replace("Array", "BSD")))]
    assert not [*without_axes(ast.parse("def f(x: Array, y: Array) -> float:\n    '''x [B, S], y [S].'''"))]
    assert not [*without_axes(ast.parse("def f(x: Array, y: dict[str, Array]) -> float: ..."))]
