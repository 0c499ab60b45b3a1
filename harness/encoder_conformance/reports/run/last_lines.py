"""The last lines of a run: its coverage in numbers, and the command that runs all cases."""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from encoder_conformance.engine.run_options import RANDOM
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.core.order import work_of
from encoder_conformance.judging.records import Report, Shown
from encoder_conformance.platform.clean import first_names
from encoder_conformance.reports.run.counts import RunCounts, Standing, exactness_line
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.words import listed, up_to_sizes

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
    def of(cls, tasks: Sequence[Task]) -> "WholePlan":
        """The plan of these tasks."""
        return cls(frozenset(task.case.id for task in tasks), sum(map(work_of, tasks)))


def _seconds_of_all(report: Report, counts: RunCounts, everything: Mapping[str, WholePlan]) -> float | None:
    """An estimate: the checks not run take as long for their work as those that were, builds included. None if an
    implementation has answered nothing."""
    standings = counts.standings
    if not all(standings[name].work for name in everything):
        return None
    seconds = (standings[name].seconds * each.work / standings[name].work for name, each in everything.items())
    return sum(seconds) / report.environment.jobs


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


def last_lines(report: Report, counts: RunCounts, everything: Mapping[str, WholePlan]) -> list[str]:
    """The number of cases run, the deviations not excluded and clauses not cited, and the command for all cases.

    `everything`: implementation → what there is to ask of it.
    """
    asked = len({case for case, _, _ in counts.cells})
    cases = len(frozenset[str]().union(*(each.cases for each in everything.values())))
    lines = [f"Asked {asked} of {cases} cases."]
    if report.ended_by in ("budget", "first failure"):
        planned, not_run = counts.outcomes.total(), counts.outcomes[Outcome.NOT_RUN]
        lines[0] = f"Ended by the {report.ended_by}: {planned - not_run} of {planned} checks asked."
    lines += _costs_of_declarations(counts)
    if counts.checks == {"invariant"}:
        lines.append(_INVARIANTS_ALONE)
    for shown in report.shown:
        if not counts.standings[shown.implementation].failed:  # what fails excludes little, and has a diagnosis to read
            lines += _coverage_lines(shown)
    lines += map(exactness_line, report.suspicious)
    if asked < cases or report.ended_by:
        seconds = _seconds_of_all(report, counts, everything)
        duration_text = f" (about {_duration(seconds)} on this machine)" if seconds else ""
        lines.append(f"All {cases} cases: {_command_for_all(report)}{duration_text}")
    return lines


def covering(counts: RunCounts) -> str:
    """The most positions and items that were asked, by format: once, or of each implementation where they differ."""
    by_coverage: dict[str, list[str]] = {}
    for name, standing in counts.standings.items():
        sizes = {dtype: standing.sizes[dtype] for dtype in FORMATS if dtype in standing.sizes}
        if sizes:
            by_coverage.setdefault(up_to_sizes(sizes), []).append(name)
    if len(by_coverage) == 1:
        return f"asked {next(iter(by_coverage))}"
    return "asked " + "; ".join(f"{listed(names)} {asked}" for asked, names in by_coverage.items())


def _costs_of_declarations(counts: RunCounts) -> Iterator[str]:
    """Implementations whose declared deviations take checks out of judgement, or take longer to predict than to
    answer."""
    narrow = "`when` in impl.yaml narrows a declaration"
    for name, count in counts.taken_out.items():
        if count:
            are = "s are" if count > 1 else " is"
            yield f"{name}: {count} check{are} not asked because of declared deviations; {narrow}"
    for name, standing in counts.standings.items():
        if (seconds := counts.predicting[name] / 1000) > max(standing.seconds, _SHORT):
            predicting = f"{seconds:.0f} s went into what its declared deviations predict"
            yield f"{name}: {predicting}, and {standing.seconds:.0f} s into its answers; {narrow}"


def _coverage_lines(shown: Shown) -> list[str]:
    lines = []
    if shown.not_excluded:
        count, names = len(shown.not_excluded), first_names(shown.not_excluded, _MOST_NAMES)
        formats = ", ".join(
            f"{excluded} of {detectable} in {dtype}" for dtype, (excluded, detectable) in shown.by_format.items()
        )
        lines.append(f"{shown.implementation}: does not rule out {count} of {shown.deviations} known bugs: {names}")
        lines.append(f"{shown.implementation}: rules out {formats}")
    if shown.not_cited:
        count, names = len(shown.not_cited), first_names(shown.not_cited, _MOST_NAMES)
        lines.append(f"{shown.implementation}: does not cover {count} of {shown.clauses} requirements: {names}")
    return lines


def _duration(seconds: float) -> str:
    return f"{max(1, round(seconds))} s" if seconds < 90 else f"{round(seconds / 60)} min"
