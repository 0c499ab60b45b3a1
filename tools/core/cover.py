"""Weighted set cover by the greedy heuristic of Chvátal (1979): few and cheap sets that cover every element."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from encoder_conformance.spec.axes import Bools


def greedy_cover(has: Bools, cost: Callable[[Sequence[int]], npt.NDArray[np.float64]]) -> list[int]:
    """Rows of `has` [sets, elements] that together cover each element that any row has, none of them redundant.

    `cost` gives the cost of every row, [sets], given the rows chosen so far. The row that adds most elements per cost
    is chosen next. At the end each redundant row is dropped, the last one first.
    """
    missing = has.any(axis=0)
    chosen: list[int] = []
    while missing.any():
        best = int(np.argmax((has & missing).sum(axis=1) / cost(chosen)))
        chosen.append(best)
        missing &= ~has[best]
    for row in chosen[::-1]:
        others = [other for other in chosen if other != row]
        if others and np.array_equal(has[others].any(axis=0), has[chosen].any(axis=0)):
            chosen.remove(row)
    return chosen


def order_by_gain(has: Bools, weights: npt.NDArray[np.float64]) -> list[int]:
    """All rows, each next one the row that adds most weight to those before it; `weights` is [elements].

    Rows that add nothing come last, in their own order.
    """
    missing, waiting, order = np.ones(has.shape[1], dtype=np.bool_), list(range(len(has))), list[int]()
    while waiting:
        gains = (has[waiting] & missing) @ weights
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            return [*order, *waiting]
        order.append(waiting.pop(best))
        missing &= ~has[order[-1]]
    return order
