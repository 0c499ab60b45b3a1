"""The last lines of a run: what it means in numbers, and the command for all of it."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from encoder_conformance.core.order import work_of
from encoder_conformance.judge.outcome import EXPECTED, Outcome
from encoder_conformance.judge.tally import Tally
from encoder_conformance.results import Record, Report, Shown
from encoder_conformance.scheduling import Assignment
from encoder_conformance.task import Task

_NAMED = 8
_OF_A_PART = ("--level", "--case", "--budget")
_OF_A_PART_ALONE = ("--fail-fast",)


@dataclass(frozen=True)
class Remainder:
    """The cases that a run asked, of how many, and what all of them would take: a command, and seconds if known."""

    asked: int
    cases: int
    command: str
    seconds: float | None


def remainder(report: Report, assignments: Sequence[Assignment], everything: Sequence[Sequence[Task]]) -> Remainder:
    """`everything` is what each could be asked. A check that was not asked is expected to take as long as one that was,
    for its work; what a check took is in its record, builds included."""
    took = {record.key: record.seconds for record in report.records if record.outcome != Outcome.NOT_RUN}
    asked = {task.case.id for each in assignments for task in each.tasks}
    cases = {task.case.id for tasks in everything for task in tasks}
    expected: float | None = 0.0
    for each, tasks in zip(assignments, everything, strict=True):
        judged = [task for task in each.tasks if task.key in took]
        done, whole = sum(map(work_of, judged)), sum(map(work_of, tasks))
        if not done:
            expected = None
        elif expected is not None:
            expected += sum(took[task.key] for task in judged) * whole / done
    seconds = expected and expected / report.environment.jobs
    return Remainder(len(asked), len(cases), _command_for_all(report.arguments), seconds)


def _command_for_all(arguments: Sequence[str]) -> str:
    """The command as it was given, without what narrows it."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        option = word.partition("=")[0]
        if option in _OF_A_PART:
            if "=" not in word:
                next(words, None)
        elif word not in _OF_A_PART_ALONE:
            kept.append(word)
    return shlex.join(["conform", *kept, "--level", "optional"])


def row(name: str, records: Sequence[Record], begun: float) -> Text:
    """One implementation that is done, in a line."""
    asked = [record for record in records if record.outcome != Outcome.UNSUPPORTED]
    tally = Tally.of(record.outcome for record in asked)
    largest = max((record.rms for record in asked if record.rms is not None), default=None)
    size = f", largest rms {largest:.3g} σ" if largest is not None else ""
    return Text(f"{name}: {tally}{size}, after {time.monotonic() - begun:.0f} s", style=tally.style)


def closing_lines(report: Report, rest: Remainder) -> list[str]:
    """What was asked of how much; what is left to exclude and to cite; the command for all of it."""
    lines = [f"Asked {rest.asked} of {rest.cases} cases."]
    if report.ended_by in ("budget", "first failure"):
        unasked = sum(record.outcome == Outcome.NOT_RUN for record in report.records)
        lines[0] = (
            f"Ended by the {report.ended_by}: {len(report.records) - unasked} of {len(report.records)} checks asked."
        )
    failed = {record.implementation for record in report.records if record.outcome not in {*EXPECTED, Outcome.NOT_RUN}}
    for shown in report.shown:
        if shown.implementation not in failed:  # what fails excludes little, and has a diagnosis to read
            lines += _left(shown)
    if rest.asked < rest.cases or report.ended_by:
        took = f" (about {_duration(rest.seconds)} on this machine)" if rest.seconds else ""
        lines.append(f"All {rest.cases} cases: {rest.command}{took}")
    return lines


def _left(shown: Shown) -> list[str]:
    lines = []
    if shown.not_excluded:
        count, names = len(shown.not_excluded), _some(shown.not_excluded)
        formats = ", ".join(f"{excluded} of {due} in {dtype}" for dtype, (excluded, due) in shown.by_format.items())
        lines.append(f"{shown.implementation}: {count} of {shown.deviations} deviations not excluded: {names}")
        lines.append(f"{shown.implementation}: excluded {formats}")
    if shown.not_cited:
        count, names = len(shown.not_cited), _some(shown.not_cited)
        lines.append(f"{shown.implementation}: {count} of {shown.clauses} clauses not asked about: {names}")
    return lines


def _some(names: Sequence[str]) -> str:
    """The first few; report.json has them all."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"
