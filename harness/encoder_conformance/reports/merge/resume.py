"""Completes a run that was interrupted: what it judged is taken over where nothing has changed since."""

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import product

from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.lock import lock_of
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.records import Record, Report
from encoder_conformance.oracle.golden.store import case_digest
from encoder_conformance.reports.run.ledger import CASE_DIGITS
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.outcome import StateKind

_KEPT: Set[StateKind] = frozenset({"conforms", "deviates", "stale", "out of line"})
"""Verdicts on an answer. Whatever had none is asked again."""


@dataclass(frozen=True)
class Resumed:
    """`kept`: the earlier run with the records that still hold. `rest`: what is left of the plan. `changed`: the
    implementations that are not what they were, or cannot be compared with what they were."""

    kept: Report
    rest: list[Assignment]
    changed: tuple[str, ...]


def resume(assignments: Sequence[Assignment], earlier: Report, seed: int, device: str) -> Resumed:
    """Divide the plan into what an earlier run has judged and the rest.

    A record holds if the implementation's lock is the same, and the seed, the device and what the case specifies.
    """
    same_inputs = (earlier.environment.seed, earlier.environment.device) == (seed, device)
    locks = {each.name: each.lock for each in earlier.implementations}
    same = {each.name for each in assignments if same_inputs and _is_same(each, locks.get(each.name))}
    planned = {task.key: task for each in assignments for task in each.tasks}
    unchanged = _unchanged_cases(planned.values(), earlier)
    kept = {
        record.key: record
        for record in earlier.records
        if record.outcome.state in _KEPT
        and record.key in planned
        and record.implementation in same
        and record.case in unchanged
    }
    rest = [Assignment(each.ready, [task for task in each.tasks if task.key not in kept]) for each in assignments]
    changed = tuple(each.name for each in assignments if each.name in locks and each.name not in same)
    return Resumed(_narrowed(earlier, kept.values(), same), [each for each in rest if each.tasks], changed)


def _is_same(assignment: Assignment, lock: str | None) -> bool:
    return lock is not None and lock == lock_of(assignment.ready)


def _unchanged_cases(tasks: Iterable[Task], earlier: Report) -> Set[str]:
    """The cases that specify what they specified then."""
    cases = {task.case.id: task.case for task in tasks}
    digests = {name: case_digest(case, constants())[:CASE_DIGITS] for name, case in cases.items()}
    return {name for name, digest in digests.items() if earlier.cases.get(name) == digest}


def _narrowed(earlier: Report, records: Collection[Record], implementations: Set[str]) -> Report:
    """The earlier report as a complete one of these records, with the diagnoses of their cases."""
    judged = {(record.implementation, record.case) for record in records}
    diagnoses = (each for each in earlier.diagnoses if judged.intersection(product([each.implementation], each.cases)))
    changes = {
        "complete": True,
        "ended_by": None,
        "records": tuple(records),
        "diagnoses": tuple(diagnoses),
        "implementations": tuple(each for each in earlier.implementations if each.name in implementations),
    }
    return earlier.model_copy(update=changes)
