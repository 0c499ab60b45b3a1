"""Rows of an output beside those of the positions, as of a class token that a model puts before them."""

from collections.abc import Mapping

import numpy as np

from encoder_conformance.spec.axes import Array

_MOST = 2
"""Rows beside those of the positions, of which it is not known at which end they stand."""


def rows_beside(shorter: Mapping[str, Array], longer: Mapping[str, Array], lengths: tuple[int, int]) -> dict[str, int]:
    """Output → how many rows it has more than there are positions, of those [batch, rows, …] that have as many more at
    either length."""
    found = dict[str, int]()
    for name in {*shorter} & {*longer}:
        if shorter[name].ndim > 1 and longer[name].ndim > 1:
            more = {each.shape[1] - length for each, length in zip((shorter[name], longer[name]), lengths, strict=True)}
            if len(more) == 1 and 0 < min(more) <= _MOST:
                found[name] = more.pop()
    return found


def of_positions(output: Array, more: int, length: int, left: slice) -> Array:
    """[batch, length, …] of an output [batch, length + more, …]: rows that are of positions of `left`, or of none,
    whichever end the others stand at, in the place of those; and of the positions before and behind in theirs."""
    rows = [row if row < left.start else row + more for row in range(length)]
    rows[left] = [min(row, left.stop - 1) for row in rows[left]]
    return np.ascontiguousarray(output[:, rows])
