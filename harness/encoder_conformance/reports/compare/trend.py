"""Puts runs of one implementation in a row, and finds what changed at which of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from encoder_conformance.judging.records import Diagnosis, Record, Report
from encoder_conformance.judging.tally import Tally
from encoder_conformance.spec.outcome import Outcome, StateKind

Explanations = Mapping[tuple[str, str], tuple[str, ...]]
"""(case, dtype) → the deviations by which a diagnosis explains its failures."""


@dataclass(frozen=True)
class State:
    """`names`: the deviations that were seen, or by which a diagnosis explains the failure. `detail`: of what gave no
    answer, the exception or fault; of other failures the first stage out of line, or that values are not finite."""

    kind: StateKind
    names: tuple[str, ...] = ()
    detail: str = ""

    def __str__(self) -> str:
        named = " and ".join(self.names)
        match self.kind:
            case "deviates":
                return f"deviates as declared by {named}"
            case "stale":
                return "a declared deviation is not seen"
            case "out of line" if named:
                return f"out of line by {named}"
            case _:
                return f"{self.kind} ({self.detail})" if self.detail else self.kind


NOT_ASKED = State("not asked")
_LONGEST_DETAIL = 120
_NO_NUMBERS: dict[str, str] = {"non-finite": "not finite", "shape": "another shape", "dtype": "another dtype"}


def state_of(record: Record, explanations: Explanations) -> State:
    """The state of a check of which this is the record."""
    kind = record.outcome.state
    match kind:
        case "deviates":
            return State(kind, record.deviations)
        case "no answer":
            return State(kind, detail=_first_words(record))
        case "out of line":
            names = explanations.get((record.case, record.dtype), ())
            return State(kind, names, "" if names or not record.stage else _first_stage(record))
        case _:
            return State(kind)


def _first_stage(record: Record) -> str:
    """The first stage out of line, and what it is if it is no number."""
    problems = [each.problem.kind for each in record.tensors if each.tensor == record.stage and each.problem]
    return f"{_NO_NUMBERS.get(problems[0], problems[0])} at {record.stage}" if problems else f"at {record.stage}"


def _first_words(record: Record) -> str:
    """The first words of the message. What follows is of one case: numbers, shapes, a traceback."""
    first = f"{record.outcome.value}: {record.message.partition(chr(10))[0]}"
    return first if len(first) <= _LONGEST_DETAIL else f"{first[: _LONGEST_DETAIL - 1]}…"


def explained_by(diagnoses: Iterable[Diagnosis], implementation: str) -> Explanations:
    """The deviations that the diagnoses which explain everything name, for each case and dtype that they are of."""
    return {
        (case, dtype): each.deviations
        for each in diagnoses
        if each.implementation == implementation and each.confidence == "explained"
        for dtype in each.dtype.split(", ")
        for case in each.cases
    }


Key = tuple[str, str, str]
"""Case, dtype, check."""
_IN_LINE = frozenset({"conforms", "deviates"})


@dataclass
class Point:
    """A run of the implementation. `label`: by which it is told from the others, such as a version."""

    label: str
    states: dict[Key, State] = field(default_factory=dict)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    digests: dict[Key, str] = field(default_factory=dict)
    largest: float | None = None
    """The largest rms of a check that was in line, in σ."""
    absent: str = ""
    """Why there is no run of it: what is said in place of the numbers."""

    def add(self, record: Record, state: State) -> None:
        """Add a record, which came to this state."""
        key = record.case, record.dtype, record.check
        self.states[key] = state
        self.outcomes[record.outcome] += 1
        if record.digest:
            self.digests[key] = record.digest
        if state.kind in _IN_LINE and record.rms is not None:
            self.largest = max(self.largest or 0.0, record.rms)

    @property
    def tally(self) -> Tally:
        """The counts of its checks."""
        return Tally.of(self.outcomes)


def point_of(report: Report, implementation: str, label: str) -> Point:
    """The run's records of this implementation as a point."""
    explanations = explained_by(report.diagnoses, implementation)
    point = Point(label)
    for record in report.records:
        if record.implementation == implementation:
            point.add(record, state_of(record, explanations))
    return point


@dataclass(frozen=True)
class History:
    """Checks that went through the same states. `spans`: (first label, last label, state), newest first."""

    spans: tuple[tuple[str, str, State], ...]
    keys: tuple[Key, ...]

    @property
    def cases(self) -> list[str]:
        """The cases of these checks."""
        return list(dict.fromkeys(case for case, _, _ in self.keys))

    @property
    def worse(self) -> bool:
        """Whether the newest run that asked these checks has them out of line, and an older one had not."""
        newest, *older = [state for _, _, state in self.spans if state != NOT_ASKED]
        return newest.kind not in _IN_LINE and any(state.kind in _IN_LINE for state in older)

    @property
    def sentence(self) -> str:
        """A sentence such as "since 2.5: conforms; before: out of line by fully-masked-row-nan"."""
        said = []
        for number, (first, last, state) in enumerate(self.spans):
            if number == 0:
                when = f"since {first}"
            elif number == len(self.spans) - 1:
                when = "before"
            else:
                when = first if first == last else f"{first} to {last}"
            said.append(f"{when}: {state}")
        return "; ".join(said)


@dataclass(frozen=True)
class Trend:
    """`points`: oldest first, those without a run included."""

    implementation: str
    points: tuple[Point, ...]

    @property
    def present(self) -> list[Point]:
        """The points that have a run."""
        return [point for point in self.points if not point.absent]

    @cached_property
    def changes(self) -> tuple[History, ...]:
        """The histories of checks that did not stay the same, those of most checks first. That a run did not ask a
        check is no change of it."""
        labels = [point.label for point in self.present]
        grouped: dict[tuple[State, ...], list[Key]] = {}
        for key in dict.fromkeys(key for point in self.present for key in point.states):
            states = tuple(point.states.get(key, NOT_ASKED) for point in self.present)
            if len({state for state in states if state != NOT_ASKED}) > 1:
                grouped.setdefault(states, []).append(key)
        changes = [History(_spans(labels, states), tuple(keys)) for states, keys in grouped.items()]
        return tuple(sorted(changes, key=lambda change: -len(change.keys)))

    def same_bits(self, number: int) -> tuple[int, int] | None:
        """The number of answers with the same bits as at the point before, and of all that both have."""
        before = [point for point in self.points[:number] if not point.absent]
        now = self.points[number]
        if not before or now.absent:
            return None
        older = before[-1].digests
        both = [key for key in now.digests if key in older]
        return sum(now.digests[key] == older[key] for key in both), len(both)


def trends_of(reports: Sequence[Report], labels: Sequence[str]) -> list[Trend]:
    """The trend of each implementation that at least two of the runs have. `labels`: of the runs, oldest first."""
    names = dict.fromkeys(each.name for report in reports for each in report.implementations)
    found = []
    for name in names:
        points = [
            point_of(report, name, label)
            for report, label in zip(reports, labels, strict=True)
            if any(each.name == name for each in report.implementations)
        ]
        if len(points) > 1:
            found.append(Trend(name, tuple(points)))
    return found


def _spans(labels: Sequence[str], states: Sequence[State]) -> tuple[tuple[str, str, State], ...]:
    spans = []
    for state, members in groupby(zip(labels, states, strict=True), key=lambda pair: pair[1]):
        found = [label for label, _ in members]
        spans.append((found[0], found[-1], state))
    return tuple(reversed(spans))
