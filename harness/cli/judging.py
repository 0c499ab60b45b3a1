"""Runs assignments to the end: workers, goldens, `report.json` kept true on the way, the diagnosis, what is printed.

What judges and prints is imported once the workers have started: they import their frameworks at the same time.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from encoder_conformance.cli.options import progress_bar
from encoder_conformance.cli.statuses import INCOMPLETE, NOT_AS_EXPECTED
from encoder_conformance.errors import InputError
from encoder_conformance.golden.choice import Goldens
from encoder_conformance.golden.computed import ComputedGoldens
from encoder_conformance.golden.frozen import FrozenGoldens
from encoder_conformance.impl.interpreter import Missing
from encoder_conformance.impl.manifest import Device
from encoder_conformance.interrupts import deferred_interrupts
from encoder_conformance.judge.outcome import EXPECTED, Outcome
from encoder_conformance.report.failing import FailingTensors
from encoder_conformance.report.folder import LOGS
from encoder_conformance.results import EndedBy, Report, Shard, Verbosity
from encoder_conformance.runner import Run
from encoder_conformance.scheduling import Assignment
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.task import Task
from encoder_conformance.worker.early import EarlyWorkers
from encoder_conformance.worker.limits import Limits

if TYPE_CHECKING:
    from encoder_conformance.report.closing import Everything
    from encoder_conformance.report.digest import Digest
    from encoder_conformance.report.ledger import Ledger


@dataclass(frozen=True)
class RunOptions:
    """How a run is run; None leaves it to the machine. `budget`: seconds, from `begun` by time.monotonic() on."""

    jobs: int | None = None
    device: Device = "cpu"
    threads: int | None = None
    seed: int = 0
    begun: float = 0.0
    budget: float | None = None
    fail_fast: bool = False
    limits: Limits = field(default_factory=Limits)
    shard: Shard | None = None
    """The part of a plan that the assignments are."""
    verbosity: Verbosity = "usual"
    keep_failing: bool = False
    """Keep the tensors of checks that fail in the run's folder."""

    @property
    def until(self) -> float | None:
        return None if self.budget is None else self.begun + self.budget


@dataclass(frozen=True)
class Judged:
    """A run that has ended. `everything`: for each assignment, what there is to ask of its implementation."""

    report: Report
    ledger: "Ledger"
    assignments: list[Assignment]
    everything: Sequence["Everything"]
    verbosity: Verbosity = "usual"

    def show(self, out: Path | None) -> int:
        """Print the report, and give the exit status: 0 all as expected, 1 something does not conform, 3 incomplete.
        `out`: the folder that the user named."""
        from encoder_conformance.report.closing import remainder
        from encoder_conformance.report.folder import many_runs
        from encoder_conformance.report.terminal import console, show_report

        digest = self.ledger.digest
        rest = remainder(self.report, digest, self.assignments, self.everything)
        show_report(console(), self.report, digest, out, rest, quiet=self.verbosity == "quiet")
        if self.ledger.problem:
            click.echo(f"conform: {self.ledger.problem}: not all of this run is on disk", err=True)
            return INCOMPLETE
        click.echo(f"Report: {self.ledger.path}")
        if out is None and (line := many_runs()):
            click.echo(line)
        return _exit_status(self.report, digest)


def judge_assignments(
    assignments: list[Assignment],
    absent: list[Missing],
    cases: list[Case],
    goldens: Goldens,
    folder: Path,
    options: RunOptions,
    everything: Callable[[], Sequence[list[Task]]],
    early: EarlyWorkers | None = None,
) -> Judged:
    """Run every assignment's tasks, which are of these cases, and judge them. `everything`: for each assignment, all
    that could be asked; called while workers start. `early`: workers that have been started already.

    Raises InputError if the time is over before any answer.
    """
    failing = FailingTensors(folder) if options.keep_failing else None
    in_progress = Run(
        assignments,
        goldens,
        constants(),
        jobs=options.jobs,
        device=options.device,
        logs=folder / LOGS,
        threads=options.threads,
        until=options.until,
        fail_fast=options.fail_fast,
        limits=options.limits,
        observed=failing.keep if failing else None,
        early=early,
    )
    frozen = isinstance(goldens, FrozenGoldens)
    deferral = early.interrupts if early else contextlib.ExitStack()
    with deferral, contextlib.ExitStack() as kept:
        if not early:
            deferral.enter_context(deferred_interrupts())  # until there is a ledger that says so
        kept.callback(in_progress.abort)
        if frozen:  # others are computed first, by all processors
            in_progress.begin()
        from encoder_conformance.report.closing import Everything
        from encoder_conformance.report.collection import Collection
        from encoder_conformance.report.ledger import Ledger
        from encoder_conformance.report.machine import environment

        run_environment = environment(assignments, in_progress, options.device, options.seed)
        ledger = Ledger(folder, assignments, absent, in_progress, run_environment, options.shard)
        collection = Collection(assignments, ledger, in_progress, excludes=frozen, verbosity=options.verbosity)
        kept.pop_all()
        deferral = deferral.pop_all()
    with collection.closed_if_interrupted():
        deferral.close()
        planned = [Everything.of(tasks) for tasks in everything()]
        _get_ready(in_progress, goldens, cases)
        with progress_bar() as progress:
            collection.collect(progress)
            collection.diagnose(progress)
        if options.budget and not collection.answered:
            raise InputError(
                f"{options.budget:g} s are over before a worker has answered",
                where="--budget",
                hint="give it more: a framework takes some seconds to import",
            )
        ended_by: EndedBy | None = "budget" if options.budget else None
        report = collection.close("first failure" if collection.failed and options.fail_fast else ended_by)
    if failing and failing.problem:
        click.echo(f"conform: {failing.problem}: not all failing tensors are on disk", err=True)
    return Judged(report, ledger, assignments, planned, options.verbosity)


def compute(goldens: Goldens, cases: Sequence[Case]) -> None:
    """Have the goldens of these cases that are not frozen. It takes a while, and a bar shows how far it is."""
    if isinstance(goldens, ComputedGoldens) and not goldens.are_computed:
        with progress_bar() as progress:
            bar = progress.add_task("computing goldens", total=len(cases))
            goldens.compute(
                lambda case: progress.update(bar, advance=1, description=f"computed the golden of {case.id}")
            )


def _get_ready(in_progress: Run, goldens: Goldens, cases: list[Case]) -> None:
    """Start the workers, and have the goldens: frozen ones are checked meanwhile, others are computed before."""
    from encoder_conformance.asking import measure_ahead, prepare_to_judge

    compute(goldens, cases)
    in_progress.begin()
    preparations = measure_ahead(in_progress.tasks_asked_first())
    if isinstance(goldens, FrozenGoldens):
        goldens.check(cases)
        goldens.read_ahead(in_progress.cases_asked_first())
        preparations = chain(preparations, goldens.spool_ahead(in_progress.cases_asked_first()))
    prepare_to_judge(cases)
    while not in_progress.waited_for.is_set() and next(preparations, preparations) is None:
        pass
    in_progress.prepare_while_idle(preparations)


def _exit_status(report: Report, digest: "Digest") -> int:
    outcomes = set(digest.outcomes)
    given_up = digest.given_up.total() == digest.outcomes[Outcome.NOT_RUN]
    ended = report.ended_by in ("budget", "first failure") or given_up
    if ended and not outcomes <= {*EXPECTED, Outcome.NOT_RUN}:
        return NOT_AS_EXPECTED  # the user ended it, or each check crashed; and what was judged did not conform
    if not report.complete or outcomes <= {Outcome.UNSUPPORTED}:
        return INCOMPLETE
    return 0 if outcomes <= EXPECTED else NOT_AS_EXPECTED
