"""The layout of a stage in a graph value, in Einstein notation: "S B (H d)" is [S, B, D] with heads one by one.

A layout is found at the sizes of the trace and holds at all others.
"""

from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise, permutations, product
from math import prod
from operator import mul

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
    for axes in _ways(letters, dims, index.shape):
        whole = Layout(axes).stage(index, letters, dims, sizes)
        if np.array_equal(whole.reshape(-1), np.arange(whole.size)):
            return Layout(axes, part)
    return None


@cache
def _ways(letters: str, dims: tuple[int, ...], shape: tuple[int, ...]) -> list[tuple[str, ...]]:
    """Every way to write letters of sizes `dims` as axes of sizes `shape`, of as many elements; last those with an axis
    of no letter."""
    size = dict(zip(letters, dims, strict=True))
    ends = list(accumulate(shape[:-1], mul))  # an axis ends where the letters before it hold as many elements
    fitting = []
    for order in permutations(letters):
        held = list(accumulate((size[letter] for letter in order), mul, initial=1))
        places = ([place for place, elements in enumerate(held) if elements == end] for end in ends)
        for cuts in product(*places):
            if all(cut <= later for cut, later in pairwise(cuts)):
                fitting.append(tuple("".join(order[start:stop]) for start, stop in pairwise((0, *cuts, len(order)))))
    return sorted(fitting, key=lambda axes: axes.count(""))


def _block(inside: Array) -> tuple[int, int, int] | None:
    """The axis along which a stage is a slice of a value, and the slice."""
    for axis in range(inside.ndim):
        line = np.moveaxis(inside, axis, 0).reshape(inside.shape[axis], -1)
        if (line == line[:, :1]).all() and line.any():
            at = np.flatnonzero(line[:, 0])
            if at[-1] - at[0] + 1 == len(at):
                return axis, int(at[0]), int(at[-1]) + 1
    return None
