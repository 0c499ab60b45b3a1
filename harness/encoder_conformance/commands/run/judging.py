"""Runs assignments to the end: workers, goldens, `report.json` kept true on the way, the diagnosis, what is printed."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from encoder_conformance.commands.commands import INCOMPLETE, NOT_AS_EXPECTED, unless_faulty
from encoder_conformance.commands.options import progress_bar
from encoder_conformance.engine.head_start import HeadStart, head_start, preparations
from encoder_conformance.engine.run_options import RunOptions
from encoder_conformance.engine.runner import SuiteRun
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.interpreter import Missing
from encoder_conformance.judging.records import EndedBy, Report
from encoder_conformance.oracle.golden.goldens import Goldens
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.run.collection import Collection
from encoder_conformance.reports.run.counts import RunCounts
from encoder_conformance.reports.run.folder import LOGS, many_runs
from encoder_conformance.reports.run.last_lines import WholePlan
from encoder_conformance.reports.run.ledger import Ledger
from encoder_conformance.reports.run.repeating import FailingTensors
from encoder_conformance.reports.run.terminal import show_report
from encoder_conformance.spec.outcome import EXPECTED, Outcome


@dataclass(frozen=True)
class Planned:
    """A run before it begins. `absent`: the implementations that cannot be started here.

    `everything`: implementation → what there is to ask of it; none if that is its tasks.
    """

    assignments: list[Assignment]
    goldens: Goldens
    absent: Sequence[Missing] = ()
    everything: Mapping[str, WholePlan] = field(default_factory=dict)


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended."""

    report: Report
    ledger: Ledger
    planned: Planned
    options: RunOptions

    def show(self, out: Path | None) -> int:
        """Print the report, and give the exit status: 0 all as expected, 1 something does not conform, 3 incomplete.
        `out`: the folder that the user named."""
        counts, planned = self.ledger.counts, self.planned
        everything = planned.everything or {each.name: WholePlan.of(each.tasks) for each in planned.assignments}
        show_report(self.report, counts, everything, out, quiet=self.options.quiet)
        if self.ledger.problem:
            click.echo(f"conform: {self.ledger.problem}: not all of this run is on disk", err=True)
            return INCOMPLETE
        click.echo(f"Report: {self.ledger.path}")
        if out is None and (line := many_runs()):
            click.echo(line)
        return _exit_status(self.report, counts)


def judge_assignments(
    planned: Planned, folder: Path, options: RunOptions, started: HeadStart | None = None
) -> FinishedRun:
    """Run every assignment's tasks and judge them. `started`: workers that have been started already.

    Raises InputError if the time is over before any answer.
    """
    failing = FailingTensors(folder) if options.keep_failing else None
    with contextlib.ExitStack() as stack:
        started = started or stack.enter_context(head_start())
        observed = failing.keep if failing else None
        run = SuiteRun(planned.assignments, planned.goldens, options, folder / LOGS, observed, started)
        stack.callback(run.abort)
        ledger = Ledger(folder, planned.assignments, planned.absent, run)
        collection = Collection(planned.assignments, ledger, run, excludes=planned.goldens.is_frozen)
        with collection.closed_if_interrupted():
            started.interrupts.close()  # there is a ledger now that says so
            report = _collected(collection, run, planned.goldens)
    if failing and failing.problem:
        click.echo(f"conform: {failing.problem}: not all failing tensors are on disk", err=True)
    return FinishedRun(report, ledger, planned, options)


def _collected(collection: Collection, run: SuiteRun, goldens: Goldens) -> Report:
    """The report, once every record is collected and every implementation diagnosed."""
    compute(goldens)
    goldens.check()
    with progress_bar() as progress:
        collection.collect(progress, preparations(goldens, run.first_tasks()))
        collection.diagnose(progress)
    options = run.options
    if options.budget and not collection.answered:
        raise InputError(
            f"{options.budget:g} s are over before a worker has answered",
            where="--budget",
            hint="give it more: a framework takes some seconds to import",
        )
    ended_by: EndedBy | None = "budget" if options.budget else None
    return collection.close("first failure" if collection.failed and options.fail_fast else ended_by)


def compute(goldens: Goldens) -> None:
    """Have the goldens that are not frozen. It takes a while, and a bar shows how far it is."""
    if goldens.waiting:
        with progress_bar() as progress:
            bar = progress.add_task("computing goldens", total=len(goldens.computed))
            goldens.compute(
                lambda case: progress.update(bar, advance=1, description=f"computed the golden of {case.id}")
            )


def _exit_status(report: Report, counts: RunCounts) -> int:
    outcomes = set(counts.outcomes)
    given_up = counts.given_up.total() == counts.outcomes[Outcome.NOT_RUN]
    ended = report.ended_by in ("budget", "first failure") or given_up
    if ended and not outcomes <= {*EXPECTED, Outcome.NOT_RUN}:
        return NOT_AS_EXPECTED  # the user ended it, or each check crashed; and what was judged did not conform
    if not report.complete or outcomes <= {Outcome.UNSUPPORTED}:
        return INCOMPLETE
    return unless_faulty(0 if outcomes <= EXPECTED else NOT_AS_EXPECTED, report.diagnoses)
