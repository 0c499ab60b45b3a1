"""Which argument of a whole module each input of a file is: by its name, by what its name says it is, then in order."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import islice, permutations
from typing import Any

from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.words import listed

_MEANINGS = (
    ("mask", ("mask", "padding", "valid", "masks")),
    ("types", ("type", "types", "segment", "segments", "seg")),
    ("positions", ("position", "positions", "pos")),
    ("lengths", ("length", "lengths", "len", "lens")),
    ("ids", ("ids", "tokens", "token", "words", "id")),
    ("values", ("x", "embeds", "embeddings", "hidden", "features", "states", "values", "frames", "pixel")),
)
"""What an input may be, and the words of a name that say so; the first counts."""
_MOST_ORDERS = 24


@dataclass(frozen=True)
class Argument:
    """An argument that may take an array. `kind`: that of its numbers, "f", "i" or "b", and `rank`, where it says so.
    `needed`: whether it has no default; `by_name`: whether its default is no array, and only its name gives it one."""

    name: str
    needed: bool = True
    by_name: bool = False
    kind: str = ""
    rank: int | None = None

    def takes(self, value: Array) -> bool:
        """Whether it may be this array: integers may be booleans, but no numbers are integers."""
        is_number = value.dtype.kind not in "iub"
        fits = not self.kind or (self.kind == "f") == is_number
        return fits and self.rank in (None, value.ndim)


@dataclass(frozen=True)
class GivenAs:
    """Input → argument; a key of the one argument that holds all, as `batch[ids]`. `in_order`: the inputs of which
    nothing but their order says which they are, where another order could be meant."""

    arguments: Mapping[str, str]
    in_order: tuple[str, ...] = ()
    holder: str = ""
    """The one argument that holds all inputs; "" where each is its own."""
    is_tuple: bool = False
    """Whether that is a tuple of them, in order, and no mapping."""

    def orders(self) -> Iterator["GivenAs"]:
        """Itself, and those that give these in another order, or all of them in a tuple."""
        if self.holder:
            yield from (self, replace(self, is_tuple=True))
            return
        for names in islice(permutations([self.arguments[name] for name in self.in_order]), _MOST_ORDERS):
            yield replace(self, arguments={**self.arguments, **dict(zip(self.in_order, names, strict=True))})

    def fed(self, tensors: Mapping[str, Array]) -> dict[str, Any]:
        """What the module is called with."""
        if self.holder:
            held = Held({name: tensors[name] for name in self.arguments})  # in the file's order, which no frame keeps
            return {self.holder: tuple(held.values()) if self.is_tuple else held}
        return {self.arguments[name]: value for name, value in tensors.items()}


def meaning_of(name: str) -> str:
    """What the words of a name say that it is; "" where they say nothing."""
    words = words_of(name)
    return next((meaning for meaning, known in _MEANINGS if words & {*known}), "")


def words_of(name: str) -> set[str]:
    """The words of a name, in small letters."""
    return set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))


def arguments_of(forward: Callable[..., Any], *, skipped: int = 0) -> tuple[list[Argument], bool]:
    """The arguments of a function, without the first `skipped`; and whether it takes whatever name it is called
    with."""
    every = [*inspect.signature(forward).parameters.values()][skipped:]
    named = [each for each in every if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    free = any(each.kind == each.VAR_KEYWORD for each in every)
    return [_argument(each) for each in named], free


def _argument(parameter: inspect.Parameter) -> Argument:
    needed = parameter.default is parameter.empty
    return Argument(parameter.name, needed, by_name=not needed and parameter.default is not None)


def given_as(inputs: Mapping[str, Array], arguments: Sequence[Argument], *, free: bool = False) -> GivenAs:
    """`free`: whether the module takes whatever name it is called with.

    Raises BadTarget where there are more inputs than arguments, and where names say that no order is meant.
    """
    needed = [each for each in arguments if each.needed]
    arrays = [each for each in arguments if not each.by_name]
    found = dict(_by_name(inputs, arguments))
    if len(inputs) > 1 and len(needed) == 1 and len(arrays) < len(inputs) and not free and not found:
        holder = needed[0].name
        return GivenAs({name: f"{holder}[{name}]" for name in inputs}, holder=holder)
    found |= _by_meaning(_without(inputs, found), _left(arguments, found))
    others = _without(inputs, found)
    in_order = _in_order(others, [each for each in _left(arguments, found) if not each.by_name])
    if in_order is None and free:
        return GivenAs({**found, **{name: name for name in others}})
    if in_order is None:
        raise _unclear(inputs, arguments, others)
    return GivenAs({**found, **in_order}, tuple(in_order) if len(in_order) > 1 else ())


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name).lower()


def _by_name(inputs: Mapping[str, Array], arguments: Sequence[Argument]) -> Iterator[tuple[str, str]]:
    names = {_plain(each.name): each.name for each in arguments}
    return ((name, names[_plain(name)]) for name in inputs if _plain(name) in names)


def _by_meaning(inputs: Mapping[str, Array], arguments: Sequence[Argument]) -> dict[str, str]:
    """Those that mean the same, and have more words in common than either has with another."""
    found = {}
    for name, value in inputs.items():
        best = _alike(name, [each.name for each in arguments if each.takes(value)])
        if best and _alike(best, [*inputs]) == name:
            found[name] = best
    return found


def _alike(name: str, others: Sequence[str]) -> str:
    """The one of others that means what this name does, and has the most words of it; "" where that is not one."""
    due = meaning_of(name)
    shared = {each: len(words_of(name) & words_of(each)) for each in others if due and meaning_of(each) == due}
    best = [each for each, count in shared.items() if count == max(shared.values())]
    return best[0] if len(best) == 1 else ""


def _left(arguments: Sequence[Argument], found: Mapping[str, str]) -> list[Argument]:
    return [each for each in arguments if each.name not in found.values()]


def _without(inputs: Mapping[str, Array], found: Mapping[str, str]) -> dict[str, Array]:
    return {name: value for name, value in inputs.items() if name not in found}


def _in_order(inputs: Mapping[str, Array], arguments: Sequence[Argument]) -> dict[str, str] | None:
    """Each input as the next argument that may take it, the needed ones first where there are as many; None where there
    is none, or where the names of both say that they are something else."""
    needed = [each for each in arguments if each.needed]
    free = list(needed if len(needed) >= len(inputs) else arguments)
    found = {}
    for name, value in inputs.items():
        taken = next((each for each in free if each.takes(value)), None)
        if taken is None or _contradict(name, taken.name):
            return None
        free.remove(taken)
        found[name] = taken.name
    return found


def _contradict(name: str, other: str) -> bool:
    """Whether both names say what they are, and not the same; values may be a mask that is added."""
    one, two = meaning_of(name), meaning_of(other)
    return bool(one and two and one != two and {one, two} != {"ids", "values"})


def _unclear(inputs: Mapping[str, Array], arguments: Sequence[Argument], others: Mapping[str, Array]) -> BadTarget:
    """That it is not known which argument some inputs are."""
    mine = ", ".join(f"{name} {value.dtype} [{value.ndim} axes]" for name, value in inputs.items())
    theirs = ", ".join(each.name for each in arguments) or "nothing"
    which = listed([*others])
    return BadTarget(
        f"the file takes {mine}, and the source {theirs}: nothing says which of these is {which}",
        "name the part that was exported (--at), or give both the same inputs",
    )


class Held(dict[str, Any]):
    """All inputs of a file in one argument: by their names, by what a key says that it is, and as attributes."""

    def __missing__(self, key: object) -> Any:
        found = _alike(key, [*self]) if isinstance(key, str) else ""
        if not found:
            raise KeyError(key)
        return self[found]

    def get(self, key: str, default: Any = None) -> Any:
        found = _alike(key, [*self]) if key not in [*self] else key
        return dict.get(self, found, default)

    def __contains__(self, key: object) -> bool:
        try:
            self[key]  # type: ignore[index]
        except KeyError:
            return False
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def converted(given: Mapping[str, Any], convert: Callable[[Array], Any]) -> dict[str, Any]:
    """Each array as the framework's own, those that one argument holds too."""
    return {name: _converted(value, convert) for name, value in given.items()}


def _converted(value: Any, convert: Callable[[Array], Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(map(convert, value))
    return Held({name: convert(each) for name, each in value.items()}) if isinstance(value, Held) else convert(value)


def tensors_in(answer: Any, is_tensor: Callable[[Any], bool], name: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor that is returned, by its path; a key that a mapping or a dataclass has is part of it."""
    if is_tensor(answer):
        yield name or "output", answer
        return
    for key, value in _inner(answer):
        yield from tensors_in(value, is_tensor, f"{name}.{key}" if name else str(key))


def _inner(answer: Any) -> Sequence[tuple[Any, Any]]:
    if isinstance(answer, Mapping):
        return list(answer.items())
    if isinstance(answer, (tuple, list)):
        return list(enumerate(answer))
    if is_dataclass(answer) and not isinstance(answer, type):
        return [(each.name, getattr(answer, each.name)) for each in fields(answer)]
    return ()
