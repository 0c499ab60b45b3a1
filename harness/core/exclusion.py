"""What a run has shown so far: which deviations an implementation cannot have, and which clauses were asked about."""

from collections.abc import Sequence

from encoder_conformance.core.order import excludes
from encoder_conformance.core.sensitivity import read_sensitivity
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.results import Record, Shown
from encoder_conformance.spec.clauses import clauses
from encoder_conformance.task import Task

_JUDGED = frozenset({Outcome.PASS, Outcome.DEVIATES, Outcome.STALE, Outcome.FAIL})


class Exclusion:
    """Of one implementation. A deviation is *excluded* where a check passed that sees it, in each format that was
    planned and in which any case sees it. What deviates as declared excludes nothing: it is not known what would show
    beside it."""

    def __init__(self, implementation: str, tasks: Sequence[Task]) -> None:
        self._table, self._implementation = read_sensitivity(), implementation
        self._tasks = {task.key: task for task in tasks}
        self._due = {dtype: self._table.in_format(dtype) for dtype in {task.dtype for task in tasks}}
        self._excluded = dict.fromkeys(self._due, 0)
        self._cited: set[str] = set()

    def add(self, record: Record) -> None:
        """One check that was asked, and what became of it."""
        task = self._tasks[record.key]
        if record.outcome in _JUDGED:
            self._cited.update(task.case.clauses)
        if record.outcome == Outcome.PASS:
            self._excluded[task.dtype] |= excludes(task, self._table)

    @property
    def count(self) -> tuple[int, int]:
        """Deviations excluded, and those that can be seen in the formats that were planned."""
        due, left = self._bits()
        return (due & ~left).bit_count(), due.bit_count()

    def shown(self) -> Shown:
        """What has been shown until now."""
        due, left = self._bits()
        return Shown(
            implementation=self._implementation,
            deviations=due.bit_count(),
            not_excluded=tuple(self._table.names(left)),
            by_format={
                dtype: ((bits & self._excluded[dtype]).bit_count(), bits.bit_count())
                for dtype, bits in sorted(self._due.items())
            },
            clauses=len(clauses()),
            not_cited=tuple(name for name in clauses() if name not in self._cited),
        )

    def _bits(self) -> tuple[int, int]:
        """The deviations that can be seen, and those of them that are not excluded, a bit each."""
        due = left = 0
        for dtype, bits in self._due.items():
            due |= bits
            left |= bits & ~self._excluded[dtype]
        return due, left
