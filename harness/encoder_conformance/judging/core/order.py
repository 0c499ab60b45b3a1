"""Orders a run's checks so that each excludes most of the deviations that are not yet excluded."""

import heapq
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import groupby
from operator import or_

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.core.sensitivity import Sensitivity, read_sensitivity
from encoder_conformance.judging.records import Record, Shown
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import clauses
from encoder_conformance.spec.outcome import Outcome

ACTIVATIONS = 2e5
"""Number of elements of x times layers that takes as long as the fixed part of a check."""


def sharpest_first(tasks: Sequence[Task]) -> list[list[Task]]:
    """The tasks in blocks, each of one built layer.

    The first blocks are single cases in one format, as long as each excludes a deviation or cites a clause that those
    before it do not. The rest are whole layers, those with most work first, so that no long block remains at the end.
    """
    table = read_sensitivity()
    units = [list(unit) for _, unit in groupby(tasks, key=lambda task: (task.case.id, task.dtype))]
    chosen = _order_greedily([_gain_bits(unit, table) for unit in units])
    taken = set(chosen)
    rest = [task for index, unit in enumerate(units) if index not in taken for task in unit]
    layers = [list(layer) for _, layer in groupby(rest, key=lambda task: task.build_key)]
    return [units[index] for index in chosen] + sorted(layers, key=lambda layer: -sum(map(work_of, layer)))


def work_of(task: Task) -> float:
    """The estimated work of a check: a fixed part, and a part proportional to its activations."""
    batch, sequence, d_model = task.case.x_shape
    return 0.0 if task.opt_out else 1 + batch * sequence * d_model * task.case.layer.stack.layers / ACTIVATIONS


def _gain_bits(unit: Sequence[Task], table: Sensitivity) -> int:
    """What the checks of one case in one format show: a bit for each clause, and for each deviation in a format."""
    run_tasks = [task for task in unit if task.opt_out is None]
    if not run_tasks:
        return 0
    case, known = run_tasks[0].case, list(clauses())
    excluded = reduce(or_, (excludes(task, table) for task in run_tasks))
    shift = list(FORMATS).index(run_tasks[0].dtype) * len(table.deviations) + len(known)
    return excluded << shift | sum(1 << known.index(clause) for clause in case.clauses)


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


_JUDGED = frozenset({Outcome.PASS, Outcome.DEVIATES, Outcome.STALE, Outcome.FAIL})


class Exclusion:
    """The exclusion state of one implementation.

    A deviation is *excluded* if, in each planned format in which any case detects it, a check that detects it passed.
    A check that deviates as declared excludes nothing: another deviation might be hidden by the declared one.
    """

    def __init__(self, implementation: str, dtypes: Iterable[str], *, shows_all_stages: bool) -> None:
        """`dtypes`: the planned formats."""
        self._table, self._implementation = read_sensitivity(), implementation
        self._shows_all_stages = shows_all_stages
        self._detectable = {dtype: self._table.in_format(dtype) for dtype in set(dtypes)}
        self._excluded = dict.fromkeys(self._detectable, 0)
        self._cited: set[str] = set()

    def add(self, case: Case, record: Record) -> None:
        """Add the record of a check of this case."""
        if record.outcome in _JUDGED:
            self._cited.update(case.clauses)
        if record.outcome == Outcome.PASS:
            self._excluded[record.dtype] |= self._table.excluded_by(
                case, record.dtype, record.check, shows_all_stages=self._shows_all_stages
            )

    @property
    def count(self) -> tuple[int, int]:
        """The number of deviations excluded, and of those detectable in the planned formats."""
        detectable, left = self._bits()
        return (detectable & ~left).bit_count(), detectable.bit_count()

    def shown(self) -> Shown:
        """The exclusions and cited clauses so far."""
        detectable, left = self._bits()
        return Shown(
            implementation=self._implementation,
            deviations=detectable.bit_count(),
            not_excluded=tuple(self._table.names(left)),
            by_format={
                dtype: ((bits & self._excluded[dtype]).bit_count(), bits.bit_count())
                for dtype, bits in sorted(self._detectable.items())
            },
            clauses=len(clauses()),
            not_cited=tuple(name for name in clauses() if name not in self._cited),
        )

    def _bits(self) -> tuple[int, int]:
        """The detectable deviations, and those of them that are not excluded, as bit sets."""
        left = (bits & ~self._excluded[dtype] for dtype, bits in self._detectable.items())
        return reduce(or_, self._detectable.values(), 0), reduce(or_, left, 0)
