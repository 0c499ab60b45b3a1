"""The last lines of a run: its coverage in numbers, and the command that runs all cases."""

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from encoder_conformance.engine.run_options import RANDOM
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.core.order import work_of
from encoder_conformance.judging.records import Report, Shown
from encoder_conformance.platform.clean import first_names
from encoder_conformance.reports.run.counts import RunCounts, Standing, exactness_line
from encoder_conformance.spec.outcome import Outcome

_MOST_NAMES = 8
_SHORT = 5.0
"""Seconds of an implementation's answers below which nobody minds what is predicted beside them."""
_NARROWING_OPTIONS = ("--level", "--case", "--budget")
_NARROWING_FLAGS = ("--fail-fast",)
_INVARIANTS_ALONE = (
    "Invariants alone do not show what a layer computes: any layer that treats its inputs alike keeps them. "
    "No output was compared with the specification."
)


@dataclass(frozen=True)
class WholePlan:
    """The plan without options that narrow it: all cases of an implementation, and the estimated work of its checks."""

    cases: frozenset[str]
    work: float

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> "WholePlan":
        """The plan of these tasks."""
        listed = list(tasks)
        return cls(frozenset(task.case.id for task in listed), sum(map(work_of, listed)))


@dataclass(frozen=True)
class Remainder:
    """The numbers of cases that were run and of all, and the estimated seconds of all; None if unknown."""

    run_cases: int
    cases: int
    seconds: float | None


def remainder(
    report: Report, counts: RunCounts, assignments: Sequence[Assignment], everything: Sequence[WholePlan]
) -> Remainder:
    """The remainder of a run. `everything`: for each assignment, what there is to ask of its implementation.

    The estimate assumes that the checks not run take as long for their work as those that were, builds included.
    """
    run_cases = {task.case.id for assignment in assignments for task in assignment.tasks}
    cases = frozenset[str]().union(*(each.cases for each in everything))
    standings = [counts.standings[assignment.name] for assignment in assignments]
    seconds = None
    if all(standing.work for standing in standings):
        each_takes = (s.seconds * each.work / s.work for s, each in zip(standings, everything, strict=True))
        seconds = sum(each_takes) / report.environment.jobs
    return Remainder(len(run_cases), len(cases), seconds)


def _command_for_all(report: Report) -> str:
    """The run's command, without the options that narrow it, and with the seed that was drawn."""
    kept: list[str] = []
    words = iter(report.arguments)
    for word in words:
        option = word.partition("=")[0]
        if option in _NARROWING_OPTIONS:
            if "=" not in word:
                next(words, None)
        elif word not in _NARROWING_FLAGS:
            kept.append(word)
    seed = str(report.environment.seed)
    kept = [seed if word == RANDOM else word.replace(f"={RANDOM}", f"={seed}") for word in kept]
    return shlex.join(["conform", *kept, "--level", "optional"])


def implementation_line(name: str, standing: Standing, begun: float) -> Text:
    """A line for an implementation whose checks are done. `begun`: the start by time.monotonic()."""
    tally = standing.tally
    size = f", largest rms {standing.rms:.3g} σ" if standing.rms is not None else ""
    return Text(f"{name}: {tally}{size}, after {time.monotonic() - begun:.0f} s", style=tally.style)


def last_lines(report: Report, counts: RunCounts, remaining: Remainder) -> list[str]:
    """The number of cases run, the deviations not excluded and clauses not cited, and the command for all cases."""
    lines = [f"Asked {remaining.run_cases} of {remaining.cases} cases."]
    if report.ended_by in ("budget", "first failure"):
        planned, not_run = counts.outcomes.total(), counts.outcomes[Outcome.NOT_RUN]
        lines[0] = f"Ended by the {report.ended_by}: {planned - not_run} of {planned} checks asked."
    lines += _not_asked_lines(counts.taken_out)
    lines += _slow_declarations(counts)
    if counts.checks == {"invariant"}:
        lines.append(_INVARIANTS_ALONE)
    for shown in report.shown:
        if not counts.standings[shown.implementation].failed:  # what fails excludes little, and has a diagnosis to read
            lines += _coverage_lines(shown)
    lines += map(exactness_line, report.suspicious)
    if remaining.run_cases < remaining.cases or report.ended_by:
        duration_text = f" (about {_duration(remaining.seconds)} on this machine)" if remaining.seconds else ""
        lines.append(f"All {remaining.cases} cases: {_command_for_all(report)}{duration_text}")
    return lines


def _not_asked_lines(taken_out: Mapping[str, int]) -> list[str]:
    """The number of checks that each implementation's declared deviations take out of judgement."""
    return [
        f"{name}: {count} check{'s are' if count > 1 else ' is'} not asked because of declared deviations; `when` in "
        "impl.yaml narrows a declaration"
        for name, count in taken_out.items()
        if count
    ]


def _slow_declarations(counts: RunCounts) -> list[str]:
    """Implementations whose checks take less time than what their declared deviations predict of them."""
    return [
        f"{name}: {milliseconds / 1000:.0f} s went into what its declared deviations predict, and "
        f"{standing.seconds:.0f} s into its answers; `when` in impl.yaml narrows a declaration"
        for name, standing in counts.standings.items()
        if (milliseconds := counts.predicting[name]) > 1000 * max(standing.seconds, _SHORT)
    ]


def _coverage_lines(shown: Shown) -> list[str]:
    lines = []
    if shown.not_excluded:
        count, names = len(shown.not_excluded), first_names(shown.not_excluded, _MOST_NAMES)
        formats = ", ".join(
            f"{excluded} of {detectable} in {dtype}" for dtype, (excluded, detectable) in shown.by_format.items()
        )
        lines.append(f"{shown.implementation}: {count} of {shown.deviations} deviations not excluded: {names}")
        lines.append(f"{shown.implementation}: excluded {formats}")
    if shown.not_cited:
        count, names = len(shown.not_cited), first_names(shown.not_cited, _MOST_NAMES)
        lines.append(f"{shown.implementation}: {count} of {shown.clauses} clauses not asked about: {names}")
    return lines


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"
