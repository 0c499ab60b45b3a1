"""A matrix of which nearly all elements are zeros, made in parts while it is written or compared."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from encoder_conformance.protocol.streamed import PART
from encoder_conformance.spec.portable import Floats


@dataclass(frozen=True)
class Sparse:
    """[rows, columns], 0 but for `values` at (`row`, `column`); no place is given twice."""

    shape: tuple[int, ...]
    row: npt.NDArray[np.int64]
    column: npt.NDArray[np.int64]
    values: Floats

    def whole(self) -> Floats:
        value = np.zeros(self.shape)
        value[self.row, self.column] = self.values
        return value

    def parts(self) -> Iterator[Floats]:
        """The elements in flat parts, in row-major order. The whole matrix is never in memory."""
        rows, columns = self.shape
        at = self.row * columns + self.column
        order = np.argsort(at)
        at, values = at[order], self.values[order]
        for begin in range(0, rows * columns, PART):
            part = np.zeros(min(PART, rows * columns - begin))
            first, last = np.searchsorted(at, (begin, begin + part.size))
            part[at[first:last] - begin] = values[first:last]
            yield part
