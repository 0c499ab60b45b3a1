"""The map between the specification's parameters and the elements of a module's own, and how to say it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.naming import best_named, is_earlier, score
from encoder_conformance.readers.onnx_file.layer.parameters import form_of
from encoder_conformance.spec.axes import Array


@dataclass(frozen=True)
class OwnParameters:
    """A module's parameters, each once, with their elements numbered one after the other in this order. `heard`: what
    the owner calls those for which the framework has another name."""

    shapes: Mapping[str, tuple[int, ...]]
    heard: Mapping[str, str] = field(default_factory=dict)

    def called(self, name: str) -> str:
        return self.heard.get(name, name)

    @cached_property
    def ends(self) -> dict[str, int]:
        """The number after that of a parameter's last element."""
        return dict(zip(self.shapes, accumulate(int(np.prod(shape)) for shape in self.shapes.values()), strict=True))

    @property
    def size(self) -> int:
        return max(self.ends.values(), default=0)

    def offset(self, name: str) -> int:
        """The number of a parameter's first element."""
        return self.ends[name] - int(np.prod(self.shapes[name]))

    def elements(self, name: str) -> Array:
        """The numbers of a parameter's elements, in its shape."""
        return np.arange(self.offset(name), self.ends[name]).reshape(self.shapes[name])

    def names(self, elements: Array) -> tuple[str, ...]:
        """The parameters that the elements are of."""
        ends = self.ends.items()
        return tuple(name for name, end in ends if ((elements >= self.offset(name)) & (elements < end)).any())


@dataclass(frozen=True)
class ElementMap:
    """The specification's name → the numbers of the own elements that it is, in its own shape.

    Any rearrangement is one: transposed, fused in any order, by heads. Own elements that no parameter is stay.
    `more`: what is added to the own elements of a parameter, as the 1 of norms that hold their gain less 1. `times`: a
    power of two that they are multiplied by.
    """

    own: OwnParameters
    elements: Mapping[str, Array]
    more: Mapping[str, float] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)

    def load(self, module: LiveModule, parameters: Mapping[str, Array]) -> None:
        """Give the module these parameters; those that the map lacks are passed over."""
        flat = module.flat().copy()
        for name, elements in self.elements.items():
            flat[elements.reshape(-1)] = self._own(name, parameters[name].reshape(-1))
        module.assign(flat)

    def made_one(self, parameters: Mapping[str, Array], last: str = "") -> dict[str, Array]:
        """The parameters as a module holds them whose places share elements, one transposed, say: the first that is
        read from an element says what it is, and before it `last`."""
        flat = np.zeros(self.own.size)
        for name in (*reversed(list(self.elements)), *([last] if last else [])):
            flat[self.elements[name].reshape(-1)] = self._own(name, parameters[name].reshape(-1))
        held = {name: value.astype(parameters[name].dtype) for name, value in self.held(flat).items()}
        return {**parameters, **held}

    def held(self, flat: Array) -> dict[str, Array]:
        """The specification's parameters, out of all own elements [n]."""
        found = {name: np.ascontiguousarray(flat[elements]) for name, elements in self.elements.items()}
        found |= {name: found[name] * found[name].dtype.type(times) for name, times in self.times.items()}
        return found | {name: found[name] + found[name].dtype.type(more) for name, more in self.more.items()}

    def taken(self, flat: Array) -> dict[str, Array]:
        """The gradients by the specification's parameters, out of those by all own elements [n]."""
        found = {name: np.ascontiguousarray(flat[elements]) for name, elements in self.elements.items()}
        return found | {name: found[name] / found[name].dtype.type(times) for name, times in self.times.items()}

    def _own(self, name: str, value: Array) -> Array:
        """The own elements of a parameter that has this value, both [n]."""
        value = value - self.more[name] if name in self.more else value
        return value / value.dtype.type(self.times[name]) if name in self.times else value

    def source(self, name: str) -> tuple[str, str]:
        """The own names of a parameter, joined by ", ", and in which form they hold it."""
        elements = self.elements[name]
        names = self.own.names(elements)
        if len(names) > 1:
            return ", ".join(names), "joined"
        return names[0], form_of(elements - self.own.offset(names[0]), self.own.shapes[names[0]])

    def place(self, name: str) -> tuple[tuple[int, ...], int]:
        """The shape of the own parameter that holds it, and the least of its elements that do; (), 0 of several."""
        elements = self.elements[name]
        own, *others = self.own.names(elements)
        return ((), 0) if others else (self.own.shapes[own], int(elements.min()) - self.own.offset(own))

    def unused(self) -> list[str]:
        """The own parameters of which no element is in the map, but for those that have none."""
        used = np.zeros(self.own.size, np.bool_)
        for elements in self.elements.values():
            used[elements.reshape(-1)] = True
        mine = {name: used[self.own.elements(name).reshape(-1)] for name in self.own.shapes}
        return [name for name, each in mine.items() if each.size and not each.any()]

    def repeated(self) -> list[str]:
        """The own parameters of which one place holds an element more than once."""
        found = dict[str, None]()
        for elements in self.elements.values():
            numbers, times = np.unique(elements, return_counts=True)
            found |= dict.fromkeys(self.own.names(numbers[times > 1]))
        return list(found)

    def rest_of(self, name: str) -> Array | None:
        """The elements of the same own parameter that no other has, where they lie as those of `name` do."""
        elements = self.elements[name]
        [own, *_] = self.own.names(elements)
        used = np.concatenate([each.reshape(-1) for each in self.elements.values()])
        left = np.setdiff1d(self.own.elements(own), used)
        if left.size < elements.size:
            return None
        moved: Array = elements - elements.min() + left.min()
        return moved if np.isin(moved, left).all() else None

    def shared(self) -> list[tuple[str, str]]:
        """Pairs of the specification's parameters that hold the same elements."""
        owner: dict[int, str] = {}
        pairs: dict[tuple[str, str], None] = {}
        for name, elements in self.elements.items():
            first = owner.setdefault(int(elements.reshape(-1)[0]), name)
            if first != name:
                pairs[first, name] = None
        return list(pairs)


def _of_map(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a linear map's weight, where it is held as that of a convolution of kernel 1: [out, in, 1, …]."""
    return shape[:2] if len(shape) > 2 and set(shape[2:]) == {1} else shape


def separated(map: ElementMap) -> tuple[ElementMap, tuple[tuple[str, str], ...], tuple[tuple[str, str, str], ...]]:
    """Gives each place the parameter of its name, where the graph reads one in two places, and another nowhere; of two
    that are told apart by a number alone, the first place gets the first. Of a fused one that is read in part, the
    second place gets the rest. Of heads that have a parameter each, the first is named. Two names of one tensor stay
    one: they are tied.

    Returns the map, the pairs that are tied, and what was read twice.
    """
    tied, read_twice = list[tuple[str, str]](), list[tuple[str, str, str]]()
    for first, second in map.shared():
        of_heads = _of_each_head(map, second)
        source = next(iter(of_heads)) if of_heads else map.source(first)[0]
        sounds = [score(map.own.called(source), place) for place in (first, second)]
        moved = second if sounds[0] >= sounds[1] else first
        if of_heads:
            found, other = _moved(map, moved, of_heads), of_heads[source]
        elif (beside := _unread_beside(map, source, (first, second))) is not None:
            if is_earlier(beside, source):
                moved = first
            elif is_earlier(source, beside):  # whatever number its last name has: `a_2` is no second norm's
                moved = second
            found, other = _laid_as(map.elements[moved], map.own.elements(beside)), beside
        elif (rest := map.rest_of(second)) is not None:
            # Query, key and value stand in a fused map in this order, most often, as the places do here.
            before = bool(rest.min() < map.elements[second].min())
            found, other, moved = rest, f"the rest of {source}", first if before else second
        else:
            tied.append((first, second))
            continue
        map = replace(map, elements={**map.elements, moved: found.reshape(map.elements[moved].shape)})
        read_twice.append((source, moved, other))
    return map, tuple(tied), tuple(read_twice)


def _unread_beside(map: ElementMap, source: str, places: tuple[str, str]) -> str | None:
    """The own parameter that is read nowhere, and sounds most like the second of two places that read the source. Where
    both are of one norm or linear map, one that stands beside the source comes first; else one that has the source's
    own name in another part: a gain's kin is a gain, whatever it is called."""
    shape = map.elements[places[1]].shape
    alike = [name for name in map.unused() if _of_map(map.own.shapes[name]) in (shape, shape[::-1])]
    of_one_part = len({place.rpartition(".")[0] for place in places}) == 1
    beside = [name for name in alike if of_one_part and name.rpartition(".")[0] == source.rpartition(".")[0]]
    kin = [name for name in alike if not of_one_part and name.rpartition(".")[2] == source.rpartition(".")[2]]
    return best_named(beside or kin or alike, places[1], map.own.called)


def _laid_as(elements: Array, others: Array) -> Array:
    """Other elements [m, n], lying as these [m, n] or [n, m] do in a parameter of their own; as they lie themselves,
    where these are of a part of it."""
    like = elements - elements.min() + others.min()
    return like if np.array_equal(np.sort(like.reshape(-1)), np.sort(others.reshape(-1))) else others


def _of_each_head(map: ElementMap, place: str) -> dict[str, str] | None:
    """Own parameter → the one that is read nowhere and is named like it but for one word, for all that this place reads
    of several heads; None where one has none, or it reads no more than one."""
    names = map.own.names(map.elements[place])
    unused = map.unused() if len(names) > 1 else []
    found = dict[str, str]()
    for name in names:
        alike = (each for each in unused if map.own.shapes[each] == map.own.shapes[name] and _is_beside(each, name))
        if (other := best_named(alike, place)) is None:
            return None
        found[name] = other
    return found if len(names) > 1 else None


def _is_beside(one: str, other: str) -> bool:
    """Whether two names differ in one word."""
    words = one.split("."), other.split(".")
    return len(words[0]) == len(words[1]) and sum(a != b for a, b in zip(*words, strict=True)) == 1


def _moved(map: ElementMap, place: str, others: Mapping[str, str]) -> Array:
    """The elements of a place, in other parameters of the same shapes."""
    found = map.elements[place].copy()
    for own, other in others.items():
        found[np.isin(map.elements[place], map.own.elements(own))] += map.own.offset(other) - map.own.offset(own)
    return found
