"""Finds what may be encoder layers in a model that is not run: parts that have two norms and four matrices each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from encoder_conformance.readers.module_target.errors import BadTarget

_NORMS, _MATRICES = 2, 4
"""What a layer has at least."""


class Tree(Protocol):
    """The nesting of a framework's modules."""

    def children(self, module: Any) -> Mapping[str, Any]: ...
    def is_container(self, module: Any) -> bool:
        """Whether it only holds others, as a list does."""

    def matrices(self, module: Any) -> int:
        """Counts the parameters of it and its parts that have two axes or more."""


class PartsOfModule(Protocol):
    """The layers in a model."""

    def listed(self) -> list[str]:
        """Their paths, in the order of the model."""

    def at(self, path: str) -> Any:
        """The one of this path, called as its model calls it; None where it is called by itself."""


class PartsOfTree:
    """Those that the structure shows."""

    def __init__(self, tree: Tree, module: Any) -> None:
        self._tree, self._module = tree, module

    def listed(self) -> list[str]:
        return candidates(self._tree, self._module)

    def at(self, path: str) -> None:
        return None


def at(tree: Tree, module: Any, path: str | None) -> Any:
    """The submodule of this path, or the module itself. Raises BadTarget, with the names that are there."""
    found, left = module, path or ""
    while left:
        children = tree.children(found)
        name = next((name for name in children if left == name or left.startswith(f"{name}.")), None)
        if name is None:  # of a list that is no part, its parts have names of several words
            where = (path or "").removesuffix(left).rstrip(".") or type(module).__name__
            has = f"it has {', '.join(children) or 'no parts'}"
            raise BadTarget(f"--at {path}: {where} has no part {left.partition('.')[0]!r}", has)
        found, left = children[name], left[len(name) + 1 :]
    return found


def walk(tree: Tree, module: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and part, itself first with the path ""."""
    yield path, module
    for name, child in tree.children(module).items():
        yield from walk(tree, child, f"{path}.{name}" if path else name)


def calls(tree: Tree, module: Any, keep: Callable[[str, str, Any], None], work: Callable[[], Any]) -> Any:
    """`work()`, in which `__call__` of every part tells what it takes and gives.

    The classes are patched for as long: an instance has no call of its own.
    """
    names = {id(part): path for path, part in walk(tree, module) if path}
    kinds: set[Any] = {type(part) for path, part in walk(tree, module) if path and callable(part)}
    before = {kind: kind.__call__ for kind in kinds}

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(part: Any, *given: Any, **named: Any) -> Any:
            answer, path = original(part, *given, **named), names.get(id(part))
            if path is not None:
                keep(path, "input", given)
                keep(path, "output", answer)
            return answer

        return call

    try:
        for kind, original in before.items():
            kind.__call__ = watched(original)
        return work()
    finally:
        for kind, original in before.items():
            kind.__call__ = original


def candidates(tree: Tree, module: Any) -> list[str]:
    """The paths of the layers, in the order of the model; the outermost of each kind."""
    found: list[str] = []
    for path, part in walk(tree, module):
        if path and _is_layer(tree, part) and not any(path.startswith(f"{outer}.") for outer in found):
            found.append(path)
    return found


def others(tree: Tree, module: Any, listed: Sequence[str]) -> list[str]:
    """The paths of what may be a layer beside those listed: neither one of them, nor in one, nor around one."""
    return [each for each in candidates(tree, module) if not any(_is_related(each, one) for one in listed)]


def _is_related(path: str, other: str) -> bool:
    return f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")


def _is_layer(tree: Tree, module: Any) -> bool:
    """Two norms and four matrices at least, and no part that has as many, but for attention with norms of its own."""
    if not _may_be_layer(tree, module):
        return False
    inner = [part for path, part in walk(tree, module) if path and _may_be_layer(tree, part)]
    return not inner or (not _holds_list(tree, module) and _is_within(tree, module, inner[0]))


def _may_be_layer(tree: Tree, module: Any) -> bool:
    return not tree.is_container(module) and len(_norms(tree, module)) >= _NORMS and tree.matrices(module) >= _MATRICES


def _is_within(tree: Tree, module: Any, inner: Any) -> bool:
    """Whether the module has the two norms of a layer, and its feed-forward network, beside this part of it."""
    norms = len(_norms(tree, module)) - len(_norms(tree, inner))
    return norms >= _NORMS and tree.matrices(module) - tree.matrices(inner) >= _MATRICES // 2


def _holds_list(tree: Tree, module: Any) -> bool:
    """Whether parts that may be layers stand in a list: it is a stack."""
    lists = (part for _, part in walk(tree, module) if tree.is_container(part))
    return any(_may_be_layer(tree, each) for part in lists for each in tree.children(part).values())


def _norms(tree: Tree, module: Any) -> list[Any]:
    """Its parts that are named as norms, and have no parts themselves."""
    found = []
    for _, part in walk(tree, module):
        kind = part[0] if isinstance(part, tuple) else part  # Linen's have variables
        if "norm" in type(kind).__name__.lower() and not tree.children(part):
            found.append(part)
    return found
