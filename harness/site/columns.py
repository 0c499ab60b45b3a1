"""A column of the matrix: one implementation of one run, its records compactly encoded."""

from dataclasses import dataclass, field
from typing import Any

from encoder_conformance.judge.outcome import SEVERITY, Outcome
from encoder_conformance.judge.verdict import TensorVerdict
from encoder_conformance.results import Absent, Diagnosis, Judged, Record, Report, Shown
from encoder_conformance.site.coding import MISSING, encode
from encoder_conformance.trend.state import named_by, state_of
from encoder_conformance.trend.trend import Point

OUTCOMES = tuple(Outcome)
NO_RECORD = " "
_WITHOUT_NUMBERS = (Outcome.UNSUPPORTED, Outcome.NOT_RUN)
_MOST_IN_FULL = 4
"""How many tensors out of line of one check are kept in full. The others have their size."""


@dataclass(frozen=True)
class RunFacts:
    """A run without its records. `name`: its folder's; `cut_short`: why it is incomplete, "" if it is complete."""

    name: str
    report: Report
    cut_short: str
    absent: tuple[Absent, ...]


class Table:
    """Texts by number: each is written once."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    @property
    def values(self) -> list[Any]:
        return list(self._numbers)


@dataclass
class Slot:
    """One case in one dtype: the worst outcome of what was asked, the largest rms in σ, and an entry for each check."""

    worst: Outcome | None = None
    rms: float | None = None
    checks: list[list[Any]] = field(default_factory=list)

    def add(self, record: Record, entry: list[Any]) -> None:
        self.checks.append(entry)
        if self.worst is None or self.worst == Outcome.UNSUPPORTED:
            self.worst = record.outcome
        elif record.outcome != Outcome.UNSUPPORTED and SEVERITY[record.outcome] > SEVERITY[self.worst]:
            self.worst = record.outcome  # what is not asked says nothing beside a verdict
        if record.rms is not None and (self.rms is None or record.rms > self.rms):
            self.rms = record.rms


class Column:
    """`label` is unique in a site; `slug` is the name of its page."""

    def __init__(self, run: RunFacts, judged: Judged) -> None:
        self.run, self.judged = run, judged
        self.label = self.slug = judged.name
        self.diagnoses: list[Diagnosis] = [each for each in run.report.diagnoses if each.implementation == judged.name]
        self.shown: Shown | None = next((s for s in run.report.shown if s.implementation == judged.name), None)
        self.slots: dict[tuple[str, str], Slot] = {}
        self.levels: dict[str, dict[Outcome, int]] = {}
        self.reasons: dict[str, int] = {}
        self.deviations: dict[str, int] = {}
        self.unexpected: list[Record] = []
        self.largest: float | None = None
        self.point = Point(run.name)
        self._named = named_by(self.diagnoses, judged.name)
        self._checks, self._names, self._texts = Table(), Table(), Table()

    def add(self, record: Record) -> None:
        """Add a record of this implementation, which is not kept."""
        self.point.add(record, state_of(record, self._named))
        counts = self.levels.setdefault(record.level, dict.fromkeys(OUTCOMES, 0))
        counts[record.outcome] += 1
        if record.outcome == Outcome.UNSUPPORTED:
            self.reasons[record.message] = self.reasons.get(record.message, 0) + 1
        elif record.rms is not None:
            self.largest = max(self.largest or 0.0, record.rms)
        for name in record.deviations:
            self.deviations[name] = self.deviations.get(name, 0) + 1
        if SEVERITY[record.outcome] > SEVERITY[Outcome.UNSUPPORTED] and record.outcome != Outcome.NOT_RUN:
            self.unexpected.append(record.model_copy(update={"tensors": ()}))
        self.slots.setdefault((record.case, record.dtype), Slot()).add(record, self._entry(record))

    def outcome_at(self, key: tuple[str, str]) -> str:
        """One character: the number of the worst outcome of a case in a dtype."""
        slot = self.slots.get(key)
        return NO_RECORD if slot is None or slot.worst is None else str(OUTCOMES.index(slot.worst))

    def sigma_at(self, key: tuple[str, str]) -> str:
        """One character: the largest rms of a case in a dtype."""
        slot = self.slots.get(key)
        return MISSING if slot is None else encode(slot.rms)

    def details(self, keys: list[tuple[str, str]]) -> dict[str, Any]:
        """What opens when a cell is asked for. `keys`: the cases and dtypes of the matrix, in its order."""
        return {
            "checks": self._checks.values,
            "names": self._names.values,
            "texts": self._texts.values,
            "slots": [slot.checks if (slot := self.slots.get(key)) else 0 for key in keys],
        }

    def _entry(self, record: Record) -> list[Any]:
        """[check, outcome, text] without numbers, [check, outcome, names, sizes] of what conforms.

        Otherwise [check, outcome, rms, max, names, sizes] and, where there is more to say, a mapping.
        """
        entry: list[Any] = [self._checks.number(record.check), OUTCOMES.index(record.outcome)]
        if record.outcome in _WITHOUT_NUMBERS:
            return [*entry, self._texts.number(record.message)]
        names = self._names.number(tuple(tensor.tensor for tensor in record.tensors))
        sizes = "".join(encode(tensor.rms) + encode(tensor.max) for tensor in record.tensors)
        if record.outcome == Outcome.PASS:  # most records: their largest sizes are among those of their tensors
            return [*entry, names, sizes]
        entry += [_short(record.rms), _short(record.max), names, sizes]
        more: dict[str, Any] = {}
        if record.message:
            more["text"] = self._texts.number(record.message)
        if record.deviations:
            more["deviations"] = record.deviations
        if record.distance is not None:
            more["distance"] = _short(record.distance)
        if off := [_in_full(number, each) for number, each in enumerate(record.tensors) if not each.conforms]:
            more["off"] = off[:_MOST_IN_FULL]
            more["out"] = [number for number, each in enumerate(record.tensors) if not each.conforms]
        return [*entry, more] if more else entry


def _in_full(number: int, tensor: TensorVerdict) -> dict[str, Any]:
    found: dict[str, Any] = {"n": number, "rms": _short(tensor.rms), "max": _short(tensor.max)}
    if tensor.problem:
        found["problem"] = tensor.problem.text
    elif tensor.worst_index is not None:
        found |= {"at": tensor.worst_index, "observed": tensor.observed, "expected": tensor.expected}
        found["sigma"] = _short(tensor.sigma)
    if tensor.heat:
        found["heat"] = ["".join(map(encode, row)) for row in tensor.heat]
    return found


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")
