"""How a graph value holds a stage, as letters: "S B (H d)" for [S, B, D] with the heads one after the other.

Found at the sizes of the trace, and good at any others.
"""

import re
from dataclasses import dataclass
from math import prod

import numpy as np

from encoder_conformance.impls.onnx_file.tracing.expressions import Array

Sizes = dict[str, int]


@dataclass(frozen=True)
class Layout:
    """`axes` has the letters of each axis of the value, the slowest first; `part` is the (axis, start, stop) that is
    the stage, of a value that holds more."""

    axes: tuple[str, ...]
    part: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        return " ".join(axis if len(axis) == 1 else f"({' '.join(axis)})" if axis else "1" for axis in self.axes)

    @classmethod
    def parse(cls, text: str, part: tuple[int, int, int] | None) -> "Layout":
        axes = re.findall(r"\(([^)]*)\)|(\S+)", text)
        return cls(tuple((group or single).replace(" ", "").replace("1", "") for group, single in axes), part)

    def stage(self, value: Array, letters: str, shape: tuple[int, ...], sizes: Sizes) -> Array:
        """The stage, whose axes have these `letters` and then `shape`, out of the graph's value."""
        if self.part:
            axis, start, stop = self.part
            value = value.take(range(start, stop), axis)
        order = "".join(self.axes)
        apart = value.reshape([sizes[letter] for letter in order])
        return np.ascontiguousarray(apart.transpose([order.index(letter) for letter in letters]).reshape(shape))


def layout_of(index: Array, letters: str, sizes: Sizes) -> Layout | None:
    """`index` says of each element of a value which it is of the stage, whose axes have these letters, −1 for none.

    None where the value does not hold the whole stage, each element once, in axes that can be told apart.
    """
    part = None
    inside = index >= 0
    if not inside.all():
        part = _block(inside)
        if part is None:
            return None
        index = index.take(range(part[1], part[2]), part[0])
    dims = [sizes[letter] for letter in letters]
    if index.size != prod(dims):
        return None
    coordinates = dict(zip(letters, np.unravel_index(index, dims), strict=True))
    axes = []
    for axis in range(index.ndim):
        at = tuple(slice(None) if a == axis else 0 for a in range(index.ndim))
        axes.append(_letters({letter: values[at] for letter, values in coordinates.items()}, sizes))
    if any(axis is None for axis in axes):
        return None
    used = "".join(axes)  # type: ignore[arg-type]
    rest = [letter for letter in letters if letter not in used]
    if len(set(used)) != len(used) or any(sizes[letter] != 1 for letter in rest):
        return None
    if rest:  # a size of 1 here may be another elsewhere: the letter goes to an axis that has none, in order
        free = [i for i, axis in enumerate(axes) if not axis]
        for letter, i in zip(rest, free, strict=False):
            axes[i] = letter
        left = rest[len(free) :]
        if left:
            axes[-1] = "".join(left) + axes[-1]  # type: ignore[operator]
    layout = Layout(tuple(axes), part)  # type: ignore[arg-type]
    whole = (
        layout.stage(index, letters, tuple(dims), sizes)
        if not part
        else Layout(layout.axes).stage(index, letters, tuple(dims), sizes)
    )
    return layout if np.array_equal(whole.reshape(-1), np.arange(whole.size)) else None


def _block(inside: Array) -> tuple[int, int, int] | None:
    """The one axis along which a value is part of a stage, and from where to where."""
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
