"""A coarse picture of the error by place in a tensor, for the report."""

import numpy as np
import numpy.typing as npt

from encoder_conformance.spec.axes import P

MOST_ROWS, MOST_COLUMNS = 16, 24
Heat = tuple[tuple[float | None, ...], ...]


def heat_map(error: P, positions: npt.NDArray[np.int64], shape: tuple[int, ...]) -> Heat:
    """The largest error in each field of a grid over the last two axes, at most 16 × 24; None where none is compared.

    `error` [P]: in σ, at the flat `positions` [P] of a tensor of this shape. Other axes are taken together.
    """
    rows, columns = (1, 1, *shape)[-2:]
    height, width = min(rows, MOST_ROWS), min(columns, MOST_COLUMNS)
    column, row = positions % columns, positions // columns % rows
    grid = np.full((height, width), -1.0)
    np.maximum.at(grid, (row * height // rows, column * width // columns), error)
    return tuple(tuple(None if value < 0 else float(f"{min(value, 1e300):.3g}") for value in line) for line in grid)
