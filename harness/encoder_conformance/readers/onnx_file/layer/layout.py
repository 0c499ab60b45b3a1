"""The layout of a stage in a graph value, in Einstein notation: "S B (H d)" is [S, B, D] with heads one by one.

A layout is found at the sizes of the trace and holds at all others.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from encoder_conformance.spec.axes import Array

Sizes = dict[str, int]


@dataclass(frozen=True)
class Layout:
    """`axes` has the letters of each axis of the value, the slowest first.

    `part` (axis, start, stop) is the stage's slice of a value that holds more.
    """

    axes: tuple[str, ...]
    part: tuple[int, int, int] | None = None

    def stage(self, value: Array, letters: str, shape: tuple[int, ...], sizes: Sizes) -> Array:
        """The stage, whose axes have these `letters` and then `shape`, out of the graph's value [*axes]."""
        if self.part:
            axis, start, stop = self.part
            value = value.take(range(start, stop), axis)
        order = "".join(self.axes)
        apart = value.reshape([sizes[letter] for letter in order])
        return np.ascontiguousarray(apart.transpose([order.index(letter) for letter in letters]).reshape(shape))


def layout_of(index: Array, letters: str, sizes: Sizes) -> Layout | None:
    """`index` numbers the stage's elements in a value, −1 for others; `letters` are the stage's axes.

    None where the value does not hold the whole stage, each element once, in axes that can be told apart.
    """
    part = None
    inside = index >= 0
    if not inside.all():
        part = _block(inside)
        if part is None:
            return None
        index = index.take(range(part[1], part[2]), part[0])
    dims = tuple(sizes[letter] for letter in letters)
    if index.size != prod(dims):
        return None
    axes = _axes(index, letters, sizes)
    if axes is None:
        return None
    layout = Layout(axes)
    whole = layout.stage(index, letters, dims, sizes)
    return Layout(axes, part) if np.array_equal(whole.reshape(-1), np.arange(whole.size)) else None


def _axes(index: Array, letters: str, sizes: Sizes) -> tuple[str, ...] | None:
    """The letters of each axis of a value that holds the stage and nothing else."""
    coordinates = dict(zip(letters, np.unravel_index(index, [sizes[letter] for letter in letters]), strict=True))
    axes: list[str] = []
    for axis in range(index.ndim):
        line = tuple(slice(None) if a == axis else 0 for a in range(index.ndim))
        found = _letters({letter: values[line] for letter, values in coordinates.items()}, sizes)
        if found is None:
            return None
        axes.append(found)
    used = "".join(axes)
    rest = [letter for letter in letters if letter not in used]
    if len(set(used)) != len(used) or any(sizes[letter] != 1 for letter in rest):
        return None
    # A size of 1 here may be another elsewhere: its letter goes to an axis that has none, in order.
    free = [i for i, axis in enumerate(axes) if not axis]
    for letter, i in zip(rest, free, strict=False):
        axes[i] = letter
    if left := rest[len(free) :]:
        axes[-1] = "".join(left) + axes[-1]
    return tuple(axes)


def _block(inside: Array) -> tuple[int, int, int] | None:
    """The axis along which a stage is a slice of a value, and the slice."""
    for axis in range(inside.ndim):
        line = np.moveaxis(inside, axis, 0).reshape(inside.shape[axis], -1)
        if (line == line[:, :1]).all() and line.any():
            at = np.flatnonzero(line[:, 0])
            if at[-1] - at[0] + 1 == len(at):
                return axis, int(at[0]), int(at[-1]) + 1
    return None


def _letters(line: dict[str, Array], sizes: Sizes) -> str | None:
    """The letters of one axis, from the coordinates along it."""
    varying = [letter for letter, values in line.items() if (values != values[0]).any()]
    length = len(next(iter(line.values())))
    order = sorted(varying, key=lambda letter: int((np.diff(line[letter]) != 0).sum()))
    if prod(sizes[letter] for letter in order) != length:
        return None
    expected = np.unravel_index(np.arange(length), [sizes[letter] for letter in order]) if order else ()
    return "".join(order) if all(np.array_equal(line[c], e) for c, e in zip(order, expected, strict=True)) else None
