"""Completes a run that was interrupted: what it judged is taken over where nothing has changed since."""

from collections.abc import Sequence
from dataclasses import dataclass

from encoder_conformance.golden.store import case_digest
from encoder_conformance.impl.lock import lock_of
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.report.ledger import CASE_DIGITS
from encoder_conformance.results import Report
from encoder_conformance.scheduling import Assignment
from encoder_conformance.spec.constants import constants

_KEPT = frozenset({Outcome.PASS, Outcome.DEVIATES, Outcome.FAIL, Outcome.STALE, Outcome.INCONCLUSIVE})
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
    same = {
        each.name
        for each in assignments
        if same_inputs and locks.get(each.name) is not None and locks[each.name] == lock_of(each.ready)
    }
    cases = {task.case.id: task.case for each in assignments for task in each.tasks}
    unchanged = {
        name for name, case in cases.items() if earlier.cases.get(name) == case_digest(case, constants())[:CASE_DIGITS]
    }
    planned = {task.key for each in assignments for task in each.tasks}
    kept = {
        record.key: record
        for record in earlier.records
        if record.outcome in _KEPT
        and record.key in planned
        and record.implementation in same
        and record.case in unchanged
    }
    rest = [Assignment(each.ready, [task for task in each.tasks if task.key not in kept]) for each in assignments]
    failing = {(record.implementation, record.case) for record in kept.values()}
    diagnoses = [
        diagnosis
        for diagnosis in earlier.diagnoses
        if any((diagnosis.implementation, case) in failing for case in diagnosis.cases)
    ]
    held = earlier.model_copy(
        update={
            "complete": True,
            "ended_by": None,
            "records": tuple(kept.values()),
            "diagnoses": tuple(diagnoses),
            "implementations": tuple(each for each in earlier.implementations if each.name in same),
        }
    )
    changed = tuple(each.name for each in assignments if each.name in locks and each.name not in same)
    return Resumed(held, [each for each in rest if each.tasks], changed)
