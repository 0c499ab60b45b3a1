"""What a class or function takes, which names its code has, and what it reads of one of its arguments."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

FREE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
_MODULES = {"jax": "jax", "nnx": "flax.nnx", "keras": "keras"}
"""Names that each argument may use where they are imported."""


def names_of(found: Any) -> dict[str, Any]:
    """The names that the arguments of a class or function may use: those of the file that defines it, SimpleNamespace,
    dict, and what draws parameters. One that was handed over by value has the names that its own code uses."""
    code = found.__init__ if inspect.isclass(found) else found
    own = sys.modules.get(getattr(found, "__module__", None) or "")
    imported = {name: sys.modules[module] for name, module in _MODULES.items() if module in sys.modules}
    return {
        "SimpleNamespace": SimpleNamespace,
        "dict": dict,
        **imported,
        **(vars(own) if own else {}),
        **getattr(code, "__globals__", {}),
    }


def parameters_of(found: Any) -> list[inspect.Parameter]:
    """What it is called with; [] where its signature is not to be had. Raises nothing. A class whose `__init__` hands
    `**kwargs` on takes what that of the next class needs, too."""
    try:
        parameters = list(inspect.signature(found).parameters.values())
        if inspect.isclass(found) and all(p.kind in FREE for p in parameters):  # Flax NNX calls by a metaclass
            parameters = list(inspect.signature(found.__init__).parameters.values())[1:]
    except (TypeError, ValueError):
        return []
    named = {p.name for p in parameters}
    return [*parameters, *(each for each in _handed_on(found) if each.name not in named)]


def _handed_on(found: Any) -> Iterator[inspect.Parameter]:
    """What the `__init__` of the next class needs that a class gives it by `**kwargs` alone."""
    call = _call_of_super(found) if inspect.isclass(found) and "__init__" in vars(found) else None
    if call is None or all(keyword.arg for keyword in call.keywords):
        return
    several = (at for at, each in enumerate(call.args) if isinstance(each, ast.Starred))
    given = {keyword.arg for keyword in call.keywords}
    for parameter in parameters_of(found.__mro__[1])[next(several, len(call.args)) :]:
        if parameter.kind not in FREE and parameter.name not in given:
            yield parameter


def _call_of_super(found: type) -> ast.Call | None:
    """`super().__init__(…)` in a class's own `__init__`."""
    tree = _tree_of(vars(found)["__init__"])
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
            owner = node.func.value
            if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super":
                return node
    return None


def attributes_read(found: Any, name: str, seen: tuple[Any, ...], *, keys: bool = False) -> Iterator[str]:
    """The attributes that a class or function reads of its argument, and those that what it hands it on to reads. With
    `keys` those that it reads by `argument["key"]`, as of a mapping."""
    if found in seen or not (tree := _tree_of(found)):
        return
    names = names_of(found)
    for node in ast.walk(tree):
        if not keys and isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield from [node.attr] if _is_named(node.value, name) else []
        if keys and isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            yield from [str(node.slice.value)] if _is_named(node.value, name) else []
        called = names.get(node.func.id) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
        if isinstance(node, ast.Call) and callable(called) and (handed := _parameter_given(node, name, called)):
            yield from attributes_read(called, handed, (*seen, found), keys=keys)
    for base in getattr(found, "__bases__", ()):
        if base.__module__ == found.__module__:
            yield from attributes_read(base, name, (*seen, found), keys=keys)


def keys_read(found: Any, name: str) -> Mapping[str, bool]:
    """Key → whether a function does not do without it, of those that it reads of a mapping which it calls `name`, the
    first that it reads first: batch["x"], and not batch.get("x"), nor what is read behind `"x" in batch`."""
    tree, read = _tree_of(found), list[tuple[tuple[int, int], str, bool]]()
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Subscript) and _is_named(node.value, name):
            key, needed = node.slice, True
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_named(node.func.value, name):
            key, needed = next(iter(node.args), node.func), node.func.attr == "pop" and len(node.args) == 1
        elif isinstance(node, ast.Compare) and any(_is_named(each, name) for each in node.comparators):
            key, needed = node.left, False
        else:
            continue
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            read.append(((key.lineno, key.col_offset), key.value, needed))
    found_keys = dict.fromkeys((key for _, key, _ in sorted(read)), True)
    return found_keys | {key: False for _, key, needed in read if not needed}


def _tree_of(found: Any) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(found)))
    except (OSError, TypeError, SyntaxError):
        return None


def _is_named(value: ast.expr, name: str) -> bool:
    """Whether it is this argument, or what `self` keeps it as."""
    if isinstance(value, ast.Attribute):
        return value.attr == name and isinstance(value.value, ast.Name) and value.value.id == "self"
    return isinstance(value, ast.Name) and value.id == name


def _parameter_given(call: ast.Call, name: str, called: Any) -> str:
    """Under which name a call hands an argument on; "" where it does not."""
    for keyword in call.keywords:
        if keyword.arg and _is_named(keyword.value, name):
            return keyword.arg
    at = next((at for at, value in enumerate(call.args) if _is_named(value, name)), None)
    parameters = parameters_of(called)
    return parameters[at].name if at is not None and at < len(parameters) else ""
