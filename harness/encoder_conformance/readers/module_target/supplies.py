"""What an argument beside x is given, made anew for the sizes of each x."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from encoder_conformance.protocol.arguments import axes_text
from encoder_conformance.readers.module_target.forms_of_x import height_of
from encoder_conformance.spec.axes import Array

THETA = 1e4
MEMORY = 7
"""Positions of another sequence, which is as long as none of x that it is tried with."""
PAIR = "cosines and sines"
TURNS = "turns"
SINES_FIRST = "sines and cosines"
SINES_THEN = "sines, then cosines"
"""A pair the other way round; and both in one array, of which each is half of the features, as RoFormer has them."""
STACKED = "cosines beside sines"
BIAS = "bias that adds"
_SIZES = {
    **{"S": "the length", "B": "the size of the batch", "H": "the height", "W": "the width"},
    "HW": "the height and the width",
}


@dataclass(frozen=True, repr=False)
class Supply:
    """What one argument is given. `axes`: a letter each: B, S, T for the positions of all items, X for the heads of all
    items, of which each has `heads`, 1, and d or e for the features of a head or half of them, which are `number` then.
    `what`: the function of angles, or both in a pair or stacked; of a mask, that it is a bias, or which one it is
    again. `value`: of a kind that nothing else says; a literal is written into an adapter, and no array or function.
    `in_pairs`: each angle stands at two features side by side, and not in both halves of them.
    """

    kind: str
    axes: str = ""
    dtype: str = "int64"
    number: float = 0.0
    what: str = ""
    value: Any = field(default=None, compare=False)
    heads: int = 0
    in_pairs: bool = False

    def __repr__(self) -> str:
        """The source that makes the same, but of an array or a function."""
        known = (self.kind, self.axes, self.dtype, self.number, self.what)
        last = f", value={self.value!r}" if self.kind == "value" else f", heads={self.heads}" if self.heads else ""
        last += f", in_pairs={self.in_pairs}" if self.in_pairs else ""
        return f"Supply({', '.join(map(repr, known))}{last})"

    @property
    def said(self) -> str:
        """What it is, as a report says it."""
        form = f"{self.dtype} {axes_text(self.axes)}{', each twice in a row' if self.in_pairs else ''}"
        words = {
            "x": "x again",
            "mask": f"{self.what} again",
            "count": f"positions, {form}",
            "lengths": f"lengths, {form}",
            "parts": f"lengths as parts of the longest, {form}",
            "cumulative": f"cumulative lengths, {self.dtype} [batch + 1]",
            "size": _SIZES.get(self.axes, "a size"),
            "full": f"a {self.what or 'mask that hides'} nothing, {form} of {self.number:g}",
            "segment": f"one segment for all positions, {form}",
            "turning": f"{self.what or 'angles'} of theta 10000, {form}",
            "value": f"{self.value!r}, as you said",
            "made": "what conform_inputs makes",
            "held": f"that of the file, {self.dtype} {self._held_form}",
            "zeros": "zeros of the shape of x",
            "memory": f"another sequence, {self.dtype} [batch, {MEMORY}, {self.number:g}]",
            "none": "None",
            "empty": "an empty dict",
            "start": "0, as of the first position",
            "seed": "a key of random numbers",
            "condition": f"numbers of each item, {self._of_width}",
        }
        return words[self.kind]

    @property
    def _of_width(self) -> str:
        return f"{self.dtype} {axes_text(self.axes[:-1])[:-1]}, {self.number:g}]"

    def of(self, batch: int, sequence: int) -> Any:
        """An array, a number, or a pair of arrays, for these sizes. Raises ValueError where there is none."""
        match self.kind:
            case "count":
                counted = np.arange(sequence) if "T" not in self.axes else np.tile(np.arange(sequence), batch)
                return np.broadcast_to(counted, self._shape(batch, sequence)).astype(self.dtype)
            case "lengths":
                return np.full(self._shape(batch, sequence), sequence, self.dtype)
            case "parts" | "segment":
                return np.ones(self._shape(batch, sequence), self.dtype)
            case "cumulative":
                return (np.arange(batch + 1) * sequence).astype(self.dtype)
            case "size":
                height = height_of(sequence)
                sizes = {"S": sequence, "B": batch, "H": height, "W": sequence // height}
                return sizes.get(self.axes, (height, sequence // height))
            case "full":
                return np.full(self._shape(batch, sequence), self.number, np.dtype(self.dtype))
            case "turning":
                return self._turning(batch, sequence)
            case "start":
                return 0
            case "empty":
                return {}
            case "seed":
                return np.full(2, int(self.number), np.uint32)
            case "condition":
                drawn = np.random.default_rng(6).normal(size=int(self.number))
                return np.broadcast_to(drawn, self._shape(batch, sequence)).astype(self.dtype)
            case "memory":
                drawn = np.random.default_rng(7).normal(size=(batch, MEMORY, int(self.number)))
                return drawn.astype(self.dtype)
            case "made":
                return self.value(batch, sequence)
            case "held":
                return self._held(batch, sequence)
        return self.value

    def _shape(self, batch: int, sequence: int) -> tuple[int, ...]:
        sizes = {"B": batch, "S": sequence, "T": batch * sequence, "X": batch * self.heads}
        sizes |= {"d": int(self.number), "e": int(self.number) // 2}
        return tuple(sizes[axis] if axis in sizes else int(axis) for axis in self.axes)

    def _turning(self, batch: int, sequence: int) -> Array | tuple[Array, Array]:
        """Angles, or functions of them, of each position and each pair of features, in float64: a module that is asked
        in float64 would be given the noise of float32."""
        d = int(self.number)
        angles = np.arange(sequence)[:, None] * THETA ** (-np.arange(0, d, 2) / d)
        if self.what == SINES_THEN:
            return self._shaped(np.concatenate([np.sin(angles), np.cos(angles)], -1), batch, sequence)
        if self.axes.endswith("d"):
            angles = np.repeat(angles, 2, -1) if self.in_pairs else np.concatenate([angles, angles], -1)
        turned = {"cosines": np.cos(angles), "sines": np.sin(angles), TURNS: np.exp(1j * angles)}
        if self.what == SINES_FIRST:
            return self._shaped(turned["sines"], batch, sequence), self._shaped(turned["cosines"], batch, sequence)
        turned[STACKED] = np.stack([turned["cosines"], turned["sines"]], -1)
        if self.what == PAIR:
            return self._shaped(turned["cosines"], batch, sequence), self._shaped(turned["sines"], batch, sequence)
        return self._shaped(turned.get(self.what, angles), batch, sequence)

    def _shaped(self, made: Array, batch: int, sequence: int) -> Array:
        """Numbers [sequence, …] of each position as the axes say, for all items where they are rows."""
        of_each = made.shape[1:]
        if "T" in self.axes:
            made = np.tile(made, (batch, *(1 for _ in of_each)))
        before = [len(made) if axis in "ST" else 1 for axis in self.axes[: -len(of_each)]]
        shaped = made.reshape([*before, *of_each])
        return np.ascontiguousarray(np.broadcast_to(shaped, self._shape(batch, sequence)))

    @property
    def _held_form(self) -> str:
        shape = zip(self.axes, np.shape(self.value), strict=False)  # nothing, of another kind
        return f"[{', '.join({'B': 'batch', 'S': 'sequence'}.get(axis, str(size)) for axis, size in shape)}]"

    @property
    def longest(self) -> int:
        """The largest number of positions that there are numbers for; 0: any."""
        at = self.axes.find("S") if self.kind == "held" else -1
        return 0 if at < 0 else int(np.shape(self.value)[at])

    def _held(self, batch: int, sequence: int) -> Array:
        """The first positions of an array of a file, of its items one after the other, and again from the first."""
        value: Array = np.asarray(self.value)
        for at, (axis, size) in enumerate(zip(self.axes, value.shape, strict=True)):
            if axis == "S" and sequence > size:
                raise ValueError(f"the file has {size} positions, and {sequence} were asked for")
            if axis in "BS":
                value = value.take(np.arange({"B": batch, "S": sequence}[axis]) % size, at)
        return value


@dataclass(frozen=True)
class Told:
    """What a user says that arguments are given. `x`: that of the file `source`, which was made to fit."""

    beside: Mapping[str, Supply] = field(default_factory=dict)
    x: Array | None = None
    source: str = ""


ToldOf = Callable[[str], Told]
"""The name of x → what a user says that other arguments are given."""


def no_words(x_name: str) -> Told:
    """Of a user who says nothing."""
    return Told()
