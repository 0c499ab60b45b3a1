"""Divides a plan into parts that take about as long as each other."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.core.order import work_of
from encoder_conformance.judging.records import Record, Shard
from encoder_conformance.platform.errors import InputError

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
