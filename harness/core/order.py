"""The sharpest question first: the order in which a run's checks exclude most of what is not yet excluded."""

import heapq
from collections.abc import Sequence
from itertools import groupby

from encoder_conformance.core.sensitivity import Sensitivity, read_sensitivity
from encoder_conformance.spec.clauses import clauses
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.task import Task

ACTIVATIONS = 2e5
"""Features of x, times layers, that take as long as all that a small check takes beside them."""


def sharpest_first(tasks: Sequence[Task]) -> list[list[Task]]:
    """The tasks in blocks, each of one built layer. First a block of one case in one format after the other, as long as
    each excludes a deviation or cites a clause that those before it do not; then the rest, whole layers, the most work
    first, so that no worker is left with it at the end."""
    table, gains = read_sensitivity(), _Gains()
    units = [list(unit) for _, unit in groupby(tasks, key=lambda task: (task.case.id, task.dtype))]
    worth = [gains.of(unit, table) for unit in units]
    chosen = _greedy(worth)
    taken = set(chosen)
    rest = [task for at, unit in enumerate(units) if at not in taken for task in unit]
    layers = [list(layer) for _, layer in groupby(rest, key=lambda task: task.build_key)]
    return [units[at] for at in chosen] + sorted(layers, key=lambda layer: -sum(map(work_of, layer)))


def work_of(task: Task) -> float:
    """About how much work a check is: the same for each small one, and then as much as it has activations."""
    batch, sequence, d_model = task.case.x_shape
    return 0.0 if task.opt_out else 1 + batch * sequence * d_model * task.case.layer.stack.layers / ACTIVATIONS


class _Gains:
    """What a case in a format shows, one bit for each deviation in each format and for each clause."""

    def __init__(self) -> None:
        self._clause = {name: 1 << at for at, name in enumerate(clauses())}

    def of(self, unit: Sequence[Task], table: Sensitivity) -> int:
        asked = [task for task in unit if task.opt_out is None]
        if not asked:
            return 0
        shown = 0
        for task in asked:
            shown |= excludes(task, table)
        at = list(FORMATS).index(asked[0].dtype) * len(table.deviations) + len(self._clause)
        return shown << at | sum(self._clause[clause] for clause in asked[0].case.clauses)


def excludes(task: Task, table: Sensitivity) -> int:
    """The deviations that this check excludes if it passes, a bit each. Of an implementation that shows a part of its
    stages nothing is known: the table is of all of them."""
    if task.check == "stages" and task.implementation.capabilities.stages != "all":
        return 0
    return table.sees(task.case, task.dtype, task.check)


def _greedy(worth: Sequence[int]) -> list[int]:
    """Which adds most to those before it, as long as one adds anything; of equals the first.

    Gains only shrink, so that one whose gain still leads when it is counted again is the best (Minoux 1978).
    """
    queue = [(-bits.bit_count(), at) for at, bits in enumerate(worth) if bits]
    heapq.heapify(queue)
    shown, order = 0, list[int]()
    while queue:
        gain, at = heapq.heappop(queue)
        now = (worth[at] & ~shown).bit_count()
        if not now:
            continue
        if now < -gain:
            heapq.heappush(queue, (-now, at))
            continue
        order.append(at)
        shown |= worth[at]
    return order
