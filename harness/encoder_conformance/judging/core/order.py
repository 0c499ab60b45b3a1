"""Orders a run's checks so that each excludes most of the deviations that are not yet excluded."""

import heapq
from collections.abc import Sequence
from itertools import groupby

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.core.sensitivity import Sensitivity, read_sensitivity
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import clauses

ACTIVATIONS = 2e5
"""Number of elements of x times layers that takes as long as the fixed part of a check."""


def sharpest_first(tasks: Sequence[Task]) -> list[list[Task]]:
    """The tasks in blocks, each of one built layer.

    The first blocks are single cases in one format, as long as each excludes a deviation or cites a clause that those
    before it do not. The rest are whole layers, those with most work first, so that no long block remains at the end.
    """
    table, gains = read_sensitivity(), _Gains()
    units = [list(unit) for _, unit in groupby(tasks, key=lambda task: (task.case.id, task.dtype))]
    gain_bits = [gains.compute(unit, table) for unit in units]
    chosen = _order_greedily(gain_bits)
    taken = set(chosen)
    rest = [task for index, unit in enumerate(units) if index not in taken for task in unit]
    layers = [list(layer) for _, layer in groupby(rest, key=lambda task: task.build_key)]
    return [units[index] for index in chosen] + sorted(layers, key=lambda layer: -sum(map(work_of, layer)))


def work_of(task: Task) -> float:
    """The estimated work of a check: a fixed part, and a part proportional to its activations."""
    batch, sequence, d_model = task.case.x_shape
    return 0.0 if task.opt_out else 1 + batch * sequence * d_model * task.case.layer.stack.layers / ACTIVATIONS


class _Gains:
    """The bit sets of cases: one bit for each deviation in each format, and for each clause."""

    def __init__(self) -> None:
        self._clause = {name: 1 << at for at, name in enumerate(clauses())}

    def compute(self, unit: Sequence[Task], table: Sensitivity) -> int:
        run_tasks = [task for task in unit if task.opt_out is None]
        if not run_tasks:
            return 0
        excluded = 0
        for task in run_tasks:
            excluded |= excludes(task, table)
        shift = list(FORMATS).index(run_tasks[0].dtype) * len(table.deviations) + len(self._clause)
        return excluded << shift | sum(self._clause[clause] for clause in run_tasks[0].case.clauses)


def excludes(task: Task, table: Sensitivity) -> int:
    """The deviations that this check excludes if it passes, as a bit set."""
    shows_all = task.implementation.capabilities.stages == "all"
    return table.excluded_by(task.case, task.dtype, task.check, shows_all_stages=shows_all)


def _order_greedily(gain_bits: Sequence[int]) -> list[int]:
    """The indices in the order of greatest gain over those before, while any gains; the first among equals.

    Gains only shrink, so an index whose updated gain still leads the queue is the best (Minoux 1978).
    """
    queue = [(-bits.bit_count(), index) for index, bits in enumerate(gain_bits) if bits]
    heapq.heapify(queue)
    covered, order = 0, list[int]()
    while queue:
        gain, index = heapq.heappop(queue)
        current = (gain_bits[index] & ~covered).bit_count()
        if not current:
            continue
        if current < -gain:
            heapq.heappush(queue, (-current, index))
            continue
        order.append(index)
        covered |= gain_bits[index]
    return order
