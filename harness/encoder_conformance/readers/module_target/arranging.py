"""How a module is called for an x [batch, sequence, d_model]: the form in which it takes x, and what stands beside.

What is given is made anew for the sizes of each x, and said in a report, so that a verdict tells what it is without.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from encoder_conformance.protocol.arguments import axes_text
from encoder_conformance.spec.axes import Array

FORMS: Mapping[str, str] = {
    "BSD": "[batch, sequence, d_model]",
    "SBD": "[sequence, batch, d_model]",
    "BDS": "[batch, d_model, sequence]",
    "BHWD": "[batch, height, width, d_model]",
    "BDHW": "[batch, d_model, height, width]",
    "TD": "[positions of all items, d_model]",
}
"""The forms of x; a map of height and width has the sequence in its rows, one after the other."""
THETA = 1e4
_MASKED = ("full", "lengths", "cumulative")
"""Kinds that a mask may be given in the place of."""


@dataclass(frozen=True)
class Supply:
    """What one argument is given. `axes`: a letter each: B, S, 1, and d or e for the features of a head or half of
    them, which are `number` then. `what`: the function of angles. `value`: of a kind that nothing else says, and no
    adapter can write down."""

    kind: str
    axes: str = ""
    dtype: str = "int64"
    number: float = 0.0
    what: str = ""
    value: Any = field(default=None, repr=False, compare=False)

    @property
    def said(self) -> str:
        """What it is, as a report says it."""
        form = f"{self.dtype} {axes_text(self.axes)}"
        words = {
            "x": "x again",
            "count": f"positions, {form}",
            "lengths": f"lengths, {form}",
            "cumulative": f"cumulative lengths, {self.dtype} [batch + 1]",
            "size": {"S": "the length", "B": "the size of the batch", "H": "the height", "W": "the width"}.get(
                self.axes, "a size"
            ),
            "full": f"a mask that hides nothing, {form} of {self.number:g}",
            "turning": f"{self.what or 'angles'} of theta 10000, {form}",
            "value": f"{self.value!r}, as you said",
            "made": "what conform_inputs makes",
            "held": f"that of the file, {form}",
            "none": "None",
        }
        return words[self.kind]

    def of(self, batch: int, sequence: int) -> Any:
        """An array, or a number, for these sizes. Raises ValueError where there is none."""
        match self.kind:
            case "count":
                return np.broadcast_to(np.arange(sequence), self._shape(batch, sequence)).astype(self.dtype)
            case "lengths":
                return np.full(batch, sequence, self.dtype)
            case "cumulative":
                return (np.arange(batch + 1) * sequence).astype(self.dtype)
            case "size":
                height = _height(sequence)
                return {"S": sequence, "B": batch, "H": height, "W": sequence // height}[self.axes]
            case "full":
                return np.full(self._shape(batch, sequence), self.number, np.dtype(self.dtype))
            case "turning":
                return self._turning(batch, sequence)
            case "made":
                return self.value(batch, sequence)
            case "held":
                return self._held(batch, sequence)
        return self.value

    def _shape(self, batch: int, sequence: int) -> tuple[int, ...]:
        sizes = {"B": batch, "S": sequence, "d": int(self.number), "e": int(self.number) // 2}
        return tuple(sizes[axis] if axis in sizes else int(axis) for axis in self.axes)

    def _turning(self, batch: int, sequence: int) -> Array:
        """Angles, or a function of them, of each position and each pair of features."""
        d = int(self.number)
        angles = np.arange(sequence)[:, None] * THETA ** (-np.arange(0, d, 2) / d)
        angles = np.concatenate([angles, angles], -1) if self.axes.endswith("d") else angles
        turned = {"cosines": np.cos(angles), "sines": np.sin(angles), "turns": np.exp(1j * angles)}
        made = turned.get(self.what, angles)
        middle = self.axes[:-1]
        shaped = made.reshape([sequence if axis == "S" else 1 for axis in middle] + [made.shape[-1]])
        return np.ascontiguousarray(np.broadcast_to(shaped, self._shape(batch, sequence)).astype(self.dtype))

    def _held(self, batch: int, sequence: int) -> Array:
        """The first items and positions of an array of a file."""
        value: Array = np.asarray(self.value)
        for at, (axis, size) in enumerate(zip(self.axes, value.shape, strict=True)):
            wanted = {"B": batch, "S": sequence}.get(axis, size)
            if wanted > size:
                raise ValueError(f"the file has {size} of what is asked {wanted} of")
            value = value.take(np.arange(wanted), at)
        return value


@dataclass(frozen=True)
class Arrangement:
    """`form`: of x, a key of FORMS. `beside`: argument → what it is given where no mask takes its place.

    `keys`: x and all else is in one mapping, x under the first of these keys; or
    in a tuple, where these are numbers. `offered`: those of them that may be masks.
    """

    form: str = "BSD"
    beside: Mapping[str, Supply] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        return self == Arrangement()

    @property
    def said(self) -> tuple[str, ...]:
        """What is to be known of a verdict: how it was called."""
        given = [f"{name}: {supply.said}" for name, supply in self.beside.items() if supply.kind != "none"]
        found = [f"it is called with {'; '.join(given)}"] if given else []
        if self.form != "BSD":
            found.append(f"x is given as {FORMS[self.form]}")
        if self.keys:
            found.append(
                f"x is the first of a tuple of {len(self.keys)}"
                if self.keys[0].isdigit()
                else f"x is {self.keys[0]!r} of a mapping"
            )
        return tuple(found)

    @property
    def writable(self) -> bool:
        """Whether its source says all of it."""
        return all(each.kind == "none" or each.value is None for each in self.beside.values())

    @property
    def masks(self) -> tuple[str, ...]:
        """Arguments that a mask of padding takes the place of, though they are none: of lengths."""
        return (*(name for name, each in self.beside.items() if each.kind == "lengths"), *self.offered)

    def call(
        self,
        module: Callable[..., Any],
        x_name: str,
        x: Any,
        given: Mapping[str, Any],
        tensor: Callable[[Array, Any], Any],
    ) -> tuple[Any, Any]:
        """The answer of a module, and x as it was given it. `x_name`: of an x that has to be named, else "". `tensor`:
        an array as a tensor beside x."""
        batch, sequence = x.shape[:2]
        laid = laid_out(x, self.form)
        named: dict[str, Any] = {}
        for name, supply in self.beside.items():
            if supply.kind in _MASKED and given.get(name) is not None:
                named[name] = _counted(supply, name, given[name], (batch, sequence))
            elif supply.kind == "x":
                named[name] = laid
            else:
                made = supply.of(batch, sequence)
                made = made[name] if supply.kind == "made" else made
                named[name] = tensor(made, x) if hasattr(made, "dtype") else made
        named = {**{name: value for name, value in given.items() if name not in named}, **named}
        if self.keys:
            held = {key: named.pop(key) for key in self.keys[1:] if key in named}
            if self.keys[0].isdigit():
                return module((laid, *(held.get(key) for key in self.keys[1:])), **named), laid
            return module(HeldTogether({self.keys[0]: laid, **held}), **named), laid
        if x_name:
            return module(**{x_name: laid, **named}), laid
        return module(laid, **named), laid

    def taken_back(self, answer: Any, x: Any) -> Any:
        """The answer, in the form of x as it was given, as [batch, sequence, d_model]."""
        return taken_back(answer, self.form, x.shape)


class HeldTogether(dict[str, Any]):
    """A mapping whose values are attributes, too, as those of transformers' encodings and of dataclasses are."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def laid_out(x: Any, form: str) -> Any:
    """x [batch, sequence, d_model] in another form."""
    batch, sequence, width = x.shape
    height = _height(sequence)
    match form:
        case "SBD":
            return x.swapaxes(0, 1)
        case "BDS":
            return x.swapaxes(1, 2)
        case "BHWD":
            return x.reshape(batch, height, sequence // height, width)
        case "BDHW":
            return x.swapaxes(1, 2).reshape(batch, width, height, sequence // height)
        case "TD":
            return x.reshape(batch * sequence, width)
    return x


def taken_back(y: Any, form: str, shape: tuple[int, ...]) -> Any:
    """The way back, to [batch, sequence, d_model] of this shape."""
    batch, sequence, width = shape
    match form:
        case "SBD":
            return y.swapaxes(0, 1)
        case "BDS":
            return y.swapaxes(1, 2)
        case "BDHW":
            return y.reshape(batch, width, sequence).swapaxes(1, 2)
        case "BHWD" | "TD":
            return y.reshape(batch, sequence, width)
    return y


def _height(sequence: int) -> int:
    """Of a map that is as square as so many positions can be."""
    return max(each for each in range(1, int(sequence**0.5) + 1) if sequence % each == 0)


def _counted(supply: Supply, name: str, mask: Any, sizes: tuple[int, int]) -> Any:
    """A mask in the place of what is supplied: of lengths, how many positions each item has. Raises ValueError for
    another form than [batch, sequence]."""
    if supply.kind == "full":
        return mask
    if supply.kind == "cumulative" or tuple(mask.shape) != sizes or "int" not in str(mask.dtype):
        raise ValueError(f"{name} is lengths, and no mask of this form")
    return mask.sum(-1)


def fields_of(answer: Any) -> Mapping[str, Any] | None:
    """What a dataclass, or another plain object that is returned, holds by name; None for a value."""
    if is_dataclass(answer) and not isinstance(answer, type):
        return {each.name: getattr(answer, each.name) for each in fields(answer)}
    return None
