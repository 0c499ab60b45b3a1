"""Divides a plan: into parts that take equally long, or into what an earlier run has judged and the rest."""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby, product

from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.lock import lock_of
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.core.order import work_of
from encoder_conformance.judging.records import Record, Report, Shard
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.run.ledger import case_digests
from encoder_conformance.spec.outcome import StateKind

Seconds = Mapping[tuple[str, ...], float]
"""Record key → the seconds that the check took."""
_SECONDS_OF_WORK = 0.01
"""A rough figure for the checks that were added since the seconds were recorded."""


def recorded_seconds(records: Iterable[Record]) -> Seconds:
    """The seconds of each check that was asked."""
    return {record.key: record.seconds for record in records if record.seconds}


def part_of(assignments: Sequence[Assignment], shard: Shard, recorded: Seconds) -> list[Assignment]:
    """A part of the plan. All parts together are the plan, if each is made with the same `recorded` seconds.

    No layer is in two parts, so none is built twice: the longest goes first, each to the part that has least (longest
    processing time first, Graham 1969). A check without recorded seconds counts by its estimated work. Raises
    InputError if the part is empty.
    """
    blocks: list[tuple[float, str, list[Task]]] = []
    for assignment in assignments:
        for _, group in groupby(assignment.tasks, key=lambda task: repr(task.build_key)):
            tasks = list(group)
            seconds = sum(recorded.get(task.key, _SECONDS_OF_WORK * work_of(task)) for task in tasks)
            blocks.append((seconds, assignment.name, tasks))
    totals, chosen = [0.0] * shard.of, dict[str, list[Task]]()
    for seconds, name, tasks in sorted(blocks, key=lambda block: -block[0]):
        part = totals.index(min(totals))
        totals[part] += seconds
        if part == shard.number - 1:
            chosen.setdefault(name, []).extend(tasks)
    if not chosen:
        hint = f"the plan has {len(blocks)} layers to build, which is the most parts that it can have"
        raise InputError("nothing is left for it", where=f"--shard {shard.number}/{shard.of}", hint=hint)
    return [
        Assignment(assignment.ready, sorted(chosen[assignment.name], key=lambda task: repr(task.build_key)))
        for assignment in assignments
        if assignment.name in chosen
    ]


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
    locks, same = {each.name: each.lock for each in earlier.implementations}, set[str]()
    if (earlier.environment.seed, earlier.environment.device) == (seed, device):
        same = {each.name for each in assignments if (lock := locks.get(each.name)) and lock == lock_of(each.ready)}
    planned = {task.key: task for each in assignments for task in each.tasks}
    digests = case_digests(planned.values())
    kept = {
        record.key: record
        for record in earlier.records
        if record.outcome.state in _KEPT
        and record.key in planned
        and record.implementation in same
        and earlier.cases.get(record.case) == digests[record.case]
    }
    rest = [Assignment(each.ready, [task for task in each.tasks if task.key not in kept]) for each in assignments]
    changed = tuple(each.name for each in assignments if each.name in locks and each.name not in same)
    return Resumed(_narrowed(earlier, kept.values(), same), [each for each in rest if each.tasks], changed)


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
