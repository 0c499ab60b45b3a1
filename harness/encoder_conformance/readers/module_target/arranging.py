"""How a module is called for an x [batch, sequence, d_model]: the form in which it takes x, and what stands beside.

What is given is said in a report, so that a verdict tells what it is without.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from encoder_conformance.readers.module_target.forms_of_x import FORMS, Arrays, as_map
from encoder_conformance.readers.module_target.supplies import Supply

OF_LENGTHS = ("lengths", "parts")
"""Kinds that say how many positions each item has."""
_UNSAID = "none", "zeros", "segment"
"""Kinds that another value of a call takes the place of."""
_MASKED = ("full", "cumulative", *OF_LENGTHS)
"""Kinds that a mask may be given in the place of."""


@dataclass(frozen=True)
class Arrangement:
    """`form`: of x, a key of FORMS. `beside`: argument → what it is given where no mask takes its place.

    `keys`: x and all else is in one mapping, x under the first of these keys; or in a tuple, where these are numbers,
    or, `spread`, in arguments without names. `offered`: those of them that may be masks. `mapped`: masks of padding
    that lie as x does, which is a map. `listed`: masks that stand in a list, of one. `past_first`: masks of padding
    that have no place for the first position.
    """

    form: str = "BSD"
    beside: Mapping[str, Supply] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    spread: bool = False
    offered: tuple[str, ...] = ()
    mapped: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    past_first: tuple[str, ...] = ()

    def giving(self, beside: Mapping[str, Supply]) -> "Arrangement":
        """The same, with these beside x, too."""
        return replace(self, beside={**self.beside, **beside})

    @property
    def is_plain(self) -> bool:
        return self == Arrangement()

    @property
    def said(self) -> tuple[str, ...]:
        """What is to be known of a verdict: how it was called."""
        given = [f"{name}: {supply.said}" for name, supply in self.beside.items() if supply.kind != "none"]
        found = [f"it is called with {'; '.join(given)}"] if given else []
        if self.form != "BSD":
            found.append(f"x is given as {FORMS[self.form].said}")
        found += [f"{name} is given as [batch, height, width]" for name in self.mapped]
        found += [f"{name} is given as a list of one mask" for name in self.listed]
        found += [f"{name} is given without the first position, which it hides from none" for name in self.past_first]
        if self.keys:
            together = f"{len(self.keys)} arguments" if self.spread else f"a tuple of {len(self.keys)}"
            by_place = self.keys[0].isdigit()
            found.append(f"x is the first of {together}" if by_place else f"x is {self.keys[0]!r} of a mapping")
        return tuple(found)

    @property
    def unsaid(self) -> tuple[str, ...]:
        """Arguments that are given what no source says: an array of a file, or what a function makes."""
        return tuple(name for name, each in self.beside.items() if each.kind in ("held", "made"))

    @property
    def masks(self) -> tuple[str, ...]:
        """Arguments that a mask of padding takes the place of, though they are none: of lengths."""
        return (*(name for name, each in self.beside.items() if each.kind in OF_LENGTHS), *self.offered)

    def call(
        self,
        module: Callable[..., Any],
        x_name: str,
        x: Any,
        given: Mapping[str, Any],
        arrays: Arrays,
    ) -> tuple[Any, Any]:
        """The answer of a module, and x as it was given it. `x_name`: of an x that has to be named, else ""."""
        laid = FORMS[self.form].out(x, arrays)
        named = self._named(x, laid, given, arrays)
        if self.keys:
            held = {key: named.pop(key) for key in self.keys[1:] if key in named}
            if self.keys[0].isdigit():
                values = laid, *(held.get(key) for key in self.keys[1:])
                return module(*values, **named) if self.spread else module(values, **named), laid
            return module(arrays.held({self.keys[0]: laid, **held}), **named), laid
        if x_name:
            return module(**{x_name: laid, **named}), laid
        return module(laid, **named), laid

    def _named(self, x: Any, laid: Any, given: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
        """All that stands beside x, by its name, each mask as it is taken. `laid`: x as it is given."""
        batch, sequence = x.shape[:2]
        rows = [name for name in self.mapped if tuple(getattr(given.get(name), "shape", ())) == (batch, sequence)]
        given = {**given, **{name: as_map(given[name], arrays) for name in rows}}
        given = {**given, **{name: given[name][:, 1:] for name in self.past_first if given.get(name) is not None}}
        named: dict[str, Any] = {}
        for name, supply in self.beside.items():
            if supply.kind in _UNSAID and given.get(name) is not None:
                continue
            if supply.kind == "mask":
                named |= {name: given[supply.what]} if given.get(supply.what) is not None else {}
                continue
            if supply.kind in _MASKED and given.get(name) is not None:
                named[name] = _counted(supply, name, given[name], (batch, sequence), arrays)
            elif supply.kind == "x":
                named[name] = laid
            elif supply.kind == "zeros":
                named[name] = arrays.beside(np.zeros(tuple(laid.shape), np.float32), x)
            else:
                made = supply.of(batch, sequence)
                made = made[name] if supply.kind == "made" else made
                named[name] = _beside(made, x, arrays)
        named = {**{name: value for name, value in given.items() if name not in named}, **named}
        return named | {name: [named[name]] for name in self.listed if named.get(name) is not None}

    def taken_back(self, answer: Any, x: Any, arrays: Arrays) -> Any:
        """The answer, in the form of x as it was given, as [batch, sequence, d_model]."""
        return FORMS[self.form].back(answer, arrays, x.shape)


def _beside(made: Any, x: Any, arrays: Arrays) -> Any:
    """What is given, its arrays as those of the framework."""
    if isinstance(made, tuple):
        return tuple(_beside(each, x, arrays) for each in made)
    return arrays.beside(made, x) if hasattr(made, "dtype") else made


def _counted(supply: Supply, name: str, mask: Any, sizes: tuple[int, int], arrays: Arrays) -> Any:
    """A mask in the place of what is supplied: of lengths, how many positions each item has, or which part of all.
    Raises ValueError for another form than [batch, sequence]."""
    if supply.kind == "full":
        return mask
    if supply.kind == "cumulative" or tuple(mask.shape) not in (sizes, sizes[1:]) or "int" not in str(mask.dtype):
        raise ValueError(f"{name} is lengths, and no mask of this form")
    return arrays.total(mask) / sizes[1] if supply.kind == "parts" else arrays.total(mask)
