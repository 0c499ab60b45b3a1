"""The last lines of a run: its coverage in numbers, and the command that runs all cases."""

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

_MOST_NAMES = 8
_NARROWING_OPTIONS = ("--level", "--case", "--budget")
_NARROWING_FLAGS = ("--fail-fast",)


@dataclass(frozen=True)
class Remainder:
    """How many cases were run of how many, and the command and estimated seconds of running all; None if unknown."""

    run_cases: int
    cases: int
    command: str
    seconds: float | None


def remainder(report: Report, assignments: Sequence[Assignment], everything: Sequence[Sequence[Task]]) -> Remainder:
    """The remainder of a run. `everything`: for each assignment, all tasks of its implementation.

    The estimate assumes that the checks not run take as long for their work as those that were, builds included.
    """
    seconds_by_check = {record.key: record.seconds for record in report.records if record.outcome != Outcome.NOT_RUN}
    run_cases = {task.case.id for assignment in assignments for task in assignment.tasks}
    cases = {task.case.id for tasks in everything for task in tasks}
    total_seconds: float | None = 0.0
    for assignment, tasks in zip(assignments, everything, strict=True):
        judged_tasks = [task for task in assignment.tasks if task.key in seconds_by_check]
        judged_work, all_work = sum(map(work_of, judged_tasks)), sum(map(work_of, tasks))
        if not judged_work:
            total_seconds = None
        elif total_seconds is not None:
            total_seconds += sum(seconds_by_check[task.key] for task in judged_tasks) * all_work / judged_work
    seconds = total_seconds and total_seconds / report.environment.jobs
    return Remainder(len(run_cases), len(cases), _command_for_all(report.arguments), seconds)


def _command_for_all(arguments: Sequence[str]) -> str:
    """The command with these arguments, without the options that narrow it."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        option = word.partition("=")[0]
        if option in _NARROWING_OPTIONS:
            if "=" not in word:
                next(words, None)
        elif word not in _NARROWING_FLAGS:
            kept.append(word)
    return shlex.join(["conform", *kept, "--level", "optional"])


def implementation_line(name: str, records: Sequence[Record], begun: float) -> Text:
    """A line for an implementation whose checks are done. `begun`: the start by time.monotonic()."""
    judged = [record for record in records if record.outcome != Outcome.UNSUPPORTED]
    tally = Tally.of(record.outcome for record in judged)
    largest = max((record.rms for record in judged if record.rms is not None), default=None)
    size = f", largest rms {largest:.3g} σ" if largest is not None else ""
    return Text(f"{name}: {tally}{size}, after {time.monotonic() - begun:.0f} s", style=tally.style)


def closing_lines(report: Report, remaining: Remainder) -> list[str]:
    """The number of cases run, the deviations not excluded and clauses not cited, and the command for all cases."""
    lines = [f"Asked {remaining.run_cases} of {remaining.cases} cases."]
    if report.ended_by in ("budget", "first failure"):
        not_run = sum(record.outcome == Outcome.NOT_RUN for record in report.records)
        lines[0] = (
            f"Ended by the {report.ended_by}: {len(report.records) - not_run} of {len(report.records)} checks asked."
        )
    failed = {record.implementation for record in report.records if record.outcome not in {*EXPECTED, Outcome.NOT_RUN}}
    for shown in report.shown:
        if shown.implementation not in failed:  # what fails excludes little, and has a diagnosis to read
            lines += _coverage_lines(shown)
    if remaining.run_cases < remaining.cases or report.ended_by:
        duration_text = f" (about {_duration(remaining.seconds)} on this machine)" if remaining.seconds else ""
        lines.append(f"All {remaining.cases} cases: {remaining.command}{duration_text}")
    return lines


def _coverage_lines(shown: Shown) -> list[str]:
    lines = []
    if shown.not_excluded:
        count, names = len(shown.not_excluded), _first_names(shown.not_excluded)
        formats = ", ".join(
            f"{excluded} of {detectable} in {dtype}" for dtype, (excluded, detectable) in shown.by_format.items()
        )
        lines.append(f"{shown.implementation}: {count} of {shown.deviations} deviations not excluded: {names}")
        lines.append(f"{shown.implementation}: excluded {formats}")
    if shown.not_cited:
        count, names = len(shown.not_cited), _first_names(shown.not_cited)
        lines.append(f"{shown.implementation}: {count} of {shown.clauses} clauses not asked about: {names}")
    return lines


def _first_names(names: Sequence[str]) -> str:
    """The first few names; report.json lists all."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"
