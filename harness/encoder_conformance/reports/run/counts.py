"""Counts of a run's records for the terminal, made as they arrive: none of them stays in memory."""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.core.order import work_of
from encoder_conformance.judging.records import Exactness, Record
from encoder_conformance.judging.tally import Tally
from encoder_conformance.spec.outcome import EXPECTED, SEVERITY, Outcome
from encoder_conformance.spec.reason import Kind

SHOWN_FAILURES = 12
_TAKEN_OUT: tuple[Kind, ...] = ("no-gradient", "predicted-in-size")
CellKey = tuple[str, str, str]
"""Case, implementation and dtype."""


@dataclass(slots=True)
class Cell:
    """The checks of one case in one dtype: `left` without a record, and `seen` with one.

    `worst` and `rms` (the largest, in σ) are of those that were judged.
    """

    left: int = 0
    seen: int = 0
    worst: Outcome | None = None
    rms: float | None = None

    def add(self, record: Record) -> None:
        """Count one check. An opt-out is no verdict."""
        self.left, self.seen = self.left - 1, self.seen + 1
        if record.outcome != Outcome.UNSUPPORTED:
            self.take(record.outcome, record.rms)

    def take(self, outcome: Outcome, rms: float | None) -> None:
        """Take this outcome if it is worse, and this rms if it is larger."""
        self.worst = max(self.worst or outcome, outcome, key=SEVERITY.__getitem__)
        self.rms = larger(self.rms, rms)


@dataclass(slots=True)
class Standing:
    """The records of one implementation so far.

    `planned`: how many it will have. `seconds` and `work` are what the judged ones took, and their estimated work.
    """

    planned: int
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    rms: float | None = None
    max: float | None = None
    seconds: float = 0.0
    work: float = 0.0
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Format → the most positions and the most items that were asked in it."""

    def add(self, task: Task, record: Record) -> None:
        """Count one check."""
        self.outcomes[record.outcome] += 1
        self.rms, self.max = larger(self.rms, record.rms), larger(self.max, record.max)
        self.seconds += record.seconds
        self.work += work_of(task)
        if record.outcome not in (Outcome.UNSUPPORTED, Outcome.NOT_RUN):
            positions, items = self.sizes.get(record.dtype, (0, 0))
            asked = task.case.situation
            self.sizes[record.dtype] = max(positions, asked.sequence), max(items, asked.batch)

    @property
    def left(self) -> int:
        """The number of checks without a record."""
        return self.planned - self.outcomes.total()

    @property
    def with_left(self) -> Counter[Outcome]:
        """The outcomes with the checks that were not reached."""
        return self.outcomes + Counter({Outcome.NOT_RUN: self.left})

    @property
    def tally(self) -> Tally:
        """The counts of all planned checks."""
        return Tally.of(self.with_left)

    @property
    def failed(self) -> bool:
        """Whether an outcome is not as expected."""
        return any(outcome not in EXPECTED for outcome in self.outcomes)


class RunCounts:
    """The counts of a run. `add` takes each record once; checks without one count as not run."""

    def __init__(self, assignments: Sequence[Assignment]) -> None:
        self.standings = {each.name: Standing(len(each.tasks)) for each in assignments}
        self.cells: dict[CellKey, Cell] = {}
        self.checks: set[str] = set()
        """The kinds of checks that were judged."""
        self.reasons: Counter[tuple[str, str]] = Counter()
        """(implementation, reason) → the number of its checks that are unsupported for it."""
        self.given_up: Counter[tuple[str, str]] = Counter()
        """(implementation, reason) → the number of its checks that were not run, after others had lost their worker."""
        self.taken_out: Counter[str] = Counter()
        """Implementation → how many checks its declared deviations take out of judgement."""
        self.predicting: Counter[str] = Counter()
        """Implementation → milliseconds that went into what its declared deviations predict."""
        self._compared: Counter[tuple[str, str]] = Counter()
        """(implementation, dtype) → the number of its checks whose rms shows how exact its arithmetic was."""
        self._exact: Counter[tuple[str, str]] = Counter()
        """The number of those that are more exact than rounding allows."""
        self._failures: list[tuple[int, Record]] = []
        for assignment in assignments:
            for task in assignment.tasks:
                self.cells.setdefault(_cell_key(task), Cell()).left += 1

    def add(self, number: int, task: Task, record: Record) -> None:
        """Count one record. `number`: its place in the plan."""
        self.standings[record.implementation].add(task, record)
        self.cells[_cell_key(task)].add(record)
        if record.outcome == Outcome.UNSUPPORTED:
            self.reasons[record.implementation, record.message] += 1
            self.taken_out[record.implementation] += record.kind in _TAKEN_OUT
            return
        if record.kind == "given-up":
            self.given_up[record.implementation, record.message] += 1
            return
        self.checks.add(record.check)
        self.predicting[record.implementation] += round(1000 * record.predicting)
        judged = record.outcome in (Outcome.PASS, Outcome.FAIL)
        if judged and record.rms is not None and record.dtype in _FORMATS and record.check in _CHECKS:
            self._compared[record.implementation, record.dtype] += 1
            self._exact[record.implementation, record.dtype] += record.rms < LIMIT
        if record.outcome not in EXPECTED:
            insort(self._failures, (number, record), key=lambda entry: entry[0])
            del self._failures[SHOWN_FAILURES:]

    @property
    def failures(self) -> list[Record]:
        """The first few in the order of the plan."""
        return [record for _, record in self._failures]

    @property
    def outcomes(self) -> Counter[Outcome]:
        """The outcomes of all implementations, with the checks that were not reached."""
        return sum((standing.with_left for standing in self.standings.values()), Counter())

    def suspicious(self) -> tuple[Exactness, ...]:
        """The implementations that are more exact than rounding allows, by dtype."""
        return tuple(
            Exactness(implementation=name, dtype=dtype, checks=checks, below=below)
            for (name, dtype), checks in self._compared.items()
            if checks >= _FEWEST and 2 * (below := self._exact[name, dtype]) > checks
        )

    def reached_cells(self) -> Iterable[CellKey]:
        """The cells of every case of which a check has a record; all cells if none has."""
        reached = {case for (case, _, _), cell in self.cells.items() if cell.seen}
        return [key for key in self.cells if not reached or key[0] in reached]


def _cell_key(task: Task) -> CellKey:
    return task.case.id, task.implementation.name, task.dtype


def larger(one: float | None, other: float | None) -> float | None:
    """The larger size; None if there is none."""
    return max((each for each in (one, other) if each is not None), default=None)


LIMIT = 0.25
"""σ. Of honest implementations at most 7 % of the checks are below it, of rounded goldens over 95 %."""
_FEWEST = 20
"""Checks of which most must be below it: in a few kinds of cases (an empty batch, the sums of BERT's sizes) honest ones
are, too."""
_FORMATS, _CHECKS = frozenset({"float32", "float64"}), frozenset({"output", "gradients"})
"""Of records whose rms says how exact the arithmetic was."""


def exactness_line(exactness: Exactness) -> str:
    """A line that says what is suspicious, and how to find out more."""
    which = f"{exactness.below} of {exactness.checks} outputs and gradients are within {LIMIT:g} σ"
    return (
        f"{exactness.implementation} {exactness.dtype}: suspiciously exact: {which}, and rounding makes more. Either "
        "it computes in a wider format, or it has the expected values (docs/trust.md); --seed random gives it others."
    )
