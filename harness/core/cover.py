"""Weighted set cover: few and cheap sets that together have every element (Chvátal 1979, a greedy heuristic)."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]


def greedy_cover(has: Bools, cost: Callable[[Sequence[int]], npt.NDArray[np.float64]]) -> list[int]:
    """Rows of `has` [sets, elements] that together have each element that any row has, none of them redundant.

    `cost` gives every row's cost, [sets], beside the rows that are chosen already. The row that adds most for its cost
    is taken next; at the end each row that the others make redundant is dropped, the last one first.
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


def by_what_they_add(has: Bools, weights: npt.NDArray[np.float64]) -> list[int]:
    """Every row, the one first that adds most of what those before it lack; `weights` [elements] say how much each is.
    Rows that add nothing come last, in their own order."""
    missing, waiting, order = np.ones(has.shape[1], dtype=np.bool_), list(range(len(has))), list[int]()
    while waiting:
        gains = (has[waiting] & missing) @ weights
        at = int(np.argmax(gains))
        if gains[at] <= 0:
            return [*order, *waiting]
        order.append(waiting.pop(at))
        missing &= ~has[order[-1]]
    return order
