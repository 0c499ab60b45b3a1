"""Compares two runs check by check."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TypeGuard

from encoder_conformance.judging.records import Diagnosis, Record, Report
from encoder_conformance.platform.clean import first_names
from encoder_conformance.platform.errors import InputError
from encoder_conformance.spec.load import every_case
from encoder_conformance.spec.outcome import Outcome


class Change(StrEnum):
    """The changes, from what needs attention to what needs none."""

    NEWLY_OUT = "newly out of line"
    ANOTHER_DEVIATION = "another deviation"
    OPTED_OUT = "newly opted out"
    NOT_ASKED_NOW = "not asked any more"
    STILL_OUT = "still out of line"
    NOT_ASKED_BEFORE = "not asked before"
    FEWER_DEVIATIONS = "fewer deviations"
    NEWLY_IN = "newly in line"
    WITHIN_NOISE = "within noise"
    SAME_BITS = "same bits"
    SAME_OUTCOME = "same outcome"


WORSE = frozenset({Change.NEWLY_OUT, Change.ANOTHER_DEVIATION, Change.OPTED_OUT})
"""What gives `conform compare` the exit status 1."""
AS_BEFORE = frozenset({Change.WITHIN_NOISE, Change.SAME_BITS, Change.SAME_OUTCOME})
"""What needs no list of its checks."""


def change_of(old: Record | None, new: Record | None) -> Change | None:
    """The change of a check; None if neither run asked it.

    A check that deviates as declared is in line with its declaration: it got worse if it conformed before, or if it
    deviates in another way now. Answers that conform in both runs have the same bits if their digests are equal, and
    are within noise otherwise; checks of several requests have no digest, and so only the same outcome.
    """
    if not _asked(new):
        if not _asked(old):
            return None
        opted_out = new is not None and new.outcome is Outcome.UNSUPPORTED
        return Change.OPTED_OUT if opted_out and old.outcome.is_in_line else Change.NOT_ASKED_NOW
    if not _asked(old):
        return Change.NOT_ASKED_BEFORE
    was, is_now = old.outcome.is_in_line, new.outcome.is_in_line
    if not is_now:
        return Change.NEWLY_OUT if was else Change.STILL_OUT
    if not was:
        return Change.NEWLY_IN
    before, now = set(old.deviations), set(new.deviations)
    if before != now:
        return Change.ANOTHER_DEVIATION if now - before else Change.FEWER_DEVIATIONS
    if old.digest is None or new.digest is None:
        return Change.SAME_OUTCOME
    return Change.SAME_BITS if old.digest == new.digest else Change.WITHIN_NOISE


def _asked(record: Record | None) -> TypeGuard[Record]:
    return record is not None and record.outcome.state != "not asked"


_NAMED = 5
"""The most cases that a sentence names."""


@dataclass(frozen=True)
class Changed:
    """A check whose change is `change`. `old` or `new` is None if that run has no record of it."""

    change: Change
    old: Record | None
    new: Record | None

    @property
    def record(self) -> Record:
        """The newer record that there is."""
        record = self.new or self.old
        assert record is not None
        return record


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side. `changes`: every check that either run asked, in the order of the newer run.

    `reservations`: sentences on what keeps these runs from being compared in full.
    """

    old: Report
    new: Report
    changes: tuple[Changed, ...]
    reservations: tuple[str, ...]

    @cached_property
    def counts(self) -> dict[str, Counter[Change]]:
        """Implementation → change → number of checks."""
        counts: dict[str, Counter[Change]] = {}
        for changed in self.changes:
            counts.setdefault(changed.record.implementation, Counter())[changed.change] += 1
        return counts

    @cached_property
    def by_change(self) -> dict[Change, list[Changed]]:
        """Change → the checks that it became of, from what needs attention to what needs none."""
        found = {change: [each for each in self.changes if each.change is change] for change in Change}
        return {change: checks for change, checks in found.items() if checks}

    @property
    def worse(self) -> list[Changed]:
        """The checks that got worse."""
        return [each for each in self.changes if each.change in WORSE]

    @property
    def new_diagnoses(self) -> tuple[Diagnosis, ...]:
        """The newer run's diagnoses of checks that got worse."""
        cells = {(each.record.implementation, each.record.dtype) for each in self.worse}
        cases = {each.record.case for each in self.worse}
        return tuple(
            diagnosis
            for diagnosis in self.new.diagnoses
            if cases.intersection(diagnosis.cases)
            and any((diagnosis.implementation, dtype) in cells for dtype in diagnosis.dtype.split(", "))
        )


def compare(old: Report, new: Report) -> Comparison:
    """Compare two runs. Raises InputError if they are the same run."""
    if (old.started, old.arguments, old.records) == (new.started, new.arguments, new.records):
        raise InputError(
            "these are one run", where="OLD and NEW", hint="name two runs; each `conform run` has a folder"
        )
    reservations = tuple(_reservations(old, new))
    comparable = old.environment.seed == new.environment.seed
    before = {record.key: record for record in old.records}
    now = {record.key: record for record in new.records}
    changes = []
    for key in now | before:
        one, other = before.get(key), now.get(key)
        if one is not None and not comparable:  # other inputs have other answers
            one = one.model_copy(update={"digest": None})
        if change := change_of(one, other):
            changes.append(Changed(change, one, other))
    return Comparison(old, new, tuple(changes), reservations)


def clauses_cited(names: Iterable[str]) -> Counter[str]:
    """Clause → the number of these cases that cite it. Cases that this specification lacks cite none."""
    cases = every_case()
    return Counter(clause for name in names if name in cases for clause in sorted(cases[name].clauses))


def _reservations(old: Report, new: Report) -> Iterator[str]:
    for name, report in (("older", old), ("newer", new)):
        if not report.complete:
            yield f"The {name} run is incomplete{f': ended by the {report.ended_by}' if report.ended_by else ''}."
    if other := sorted(case for case, digest in new.cases.items() if old.cases.get(case, digest) != digest):
        named = first_names(other, _NAMED)
        yield f"{len(other)} cases are specified otherwise in the newer run, and expect something else: {named}."
    if old.environment.seed != new.environment.seed:
        seeds = f"{old.environment.seed} and {new.environment.seed}"
        yield f"The runs have different inputs (seeds {seeds}), so that no answers can be compared bit by bit."
    names = {each.name for each in new.implementations}
    if missing := [each.name for each in old.implementations if each.name not in names]:
        yield f"The newer run has no {', '.join(missing)}."


_OF_MACHINES = {
    "processor": "processor",
    "cpus": "processors",
    "platform": "system",
    "device": "device",
    "threads_per_worker": "threads of each worker",
}
"""Field of a run's environment on which the bits of an answer may depend → its name in print."""


def changed_machine(old: Report, new: Report) -> tuple[str, ...]:
    """The differences between the machines of two runs, such as "processors 2 → 16"."""
    was, now = (report.environment.model_dump() for report in (old, new))
    return tuple(f"{name} {was[key]} → {now[key]}" for key, name in _OF_MACHINES.items() if was[key] != now[key])


def changed_versions(old: Report, new: Report) -> dict[str, tuple[str, ...]]:
    """Implementation → what changed about it: versions of packages, and settings."""
    before = {each.name: each for each in old.implementations}
    found = {}
    for now in new.implementations:
        if (was := before.get(now.name)) is None:
            continue
        one = {**was.versions, **{name: str(value) for name, value in was.settings.items()}}
        other = {**now.versions, **{name: str(value) for name, value in now.settings.items()}}
        names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
        if names:
            found[now.name] = tuple(f"{name} {one.get(name, '–')} → {other.get(name, '–')}" for name in names)
    return found
