"""Collects the records of a run as they arrive, for the ledger and the terminal."""

import contextlib
import time
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.progress import Progress, TaskID

from encoder_conformance.diagnosis.observations import AskInDtype
from encoder_conformance.engine.run_options import RunOptions, Verbosity
from encoder_conformance.engine.runner import SuiteRun
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.judging.core.order import Exclusion
from encoder_conformance.judging.observation import Observation
from encoder_conformance.judging.records import Diagnosis, EndedBy, Record, Report, Shown
from encoder_conformance.oracle.golden.build import compute
from encoder_conformance.reports.run.last_lines import implementation_line
from encoder_conformance.reports.run.ledger import Ledger
from encoder_conformance.reports.run.terminal import console, record_line
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.outcome import EXPECTED, Outcome
from encoder_conformance.subjects.plan import plan

_SHARE_FOR_DIAGNOSIS, _MOST_FOR_DIAGNOSIS = 0.25, 8.0
"""The time reserved for the diagnosis once a check has failed: a share of the run's time, at most these seconds."""


class Collection:
    """The records of a run. `excludes`: count exclusions, which needs frozen goldens, whose sensitivity is known.

    `verbosity`: "verbose" prints a line for each record, "quiet" none for an implementation that is done.
    """

    def __init__(
        self,
        assignments: list[Assignment],
        ledger: Ledger,
        run: SuiteRun,
        *,
        excludes: bool,
        verbosity: Verbosity = "usual",
    ) -> None:
        self._verbosity = verbosity
        self._run, self._ledger = run, ledger
        self._exclusions = {each.name: _exclusion(each) for each in assignments} if excludes else {}
        self._ready = {each.name: each.ready for each in assignments}
        self._diagnoses: list[Diagnosis] = []
        self._begun = time.monotonic()
        self.answered = self.failed = False

    def collect(self, progress: Progress, meanwhile: Iterable[None] = ()) -> None:
        """Collect every record; steps of other work are taken `meanwhile`.

        Prints a line for each implementation when its checks are done.
        """
        standings = self._ledger.counts.standings
        bar = progress.add_task("starting workers", total=sum(standing.planned for standing in standings.values()))
        with contextlib.closing(self._run.records(self._ledger.keep, meanwhile)) as records:
            for record in records:
                self._add(record)
                if self._verbosity == "verbose":
                    console().print(record_line(record), soft_wrap=True)
                self._advance(progress, bar, record)
                standing = standings[record.implementation]
                if not standing.left and not standing.failed:
                    self._run.observations(record.implementation).forget()
                if len(standings) > 1 and not standing.left and self._verbosity != "quiet":
                    line = implementation_line(record.implementation, standing, self._begun)
                    console().print(line, soft_wrap=True)

    def diagnose(self, progress: Progress) -> None:
        """Diagnose every implementation, one after the other. What is interrupted leaves those that were done."""
        bar = progress.add_task("", total=len(self._ready), visible=self.failed)
        for name in self._ready:
            progress.update(bar, description=f"diagnosing {name}; Ctrl-C ends it")
            self._diagnoses += self._run.observations(name).diagnoses(name, self._run.options.until, self._asking(name))
            progress.update(bar, advance=1)

    def _add(self, record: Record) -> None:
        task = self._ledger.add(record)
        self.answered = self.answered or record.outcome != Outcome.UNSUPPORTED
        if self._exclusions:
            self._exclusions[record.implementation].add(task.case, record)
        if record.outcome not in EXPECTED and not self.failed:
            self.failed = True
            self._reserve_time_for_diagnosis()

    def _reserve_time_for_diagnosis(self) -> None:
        if (until := self._run.options.until) is not None:
            budget = until - self._begun
            self._run.end_at(until - min(_MOST_FOR_DIAGNOSIS, _SHARE_FOR_DIAGNOSIS * budget))

    def _advance(self, progress: Progress, bar: TaskID, record: Record) -> None:
        if progress.disable:  # in a pipe nobody sees what counting for every implementation takes
            return
        counts = [exclusion.count for exclusion in self._exclusions.values()]
        excluded, detectable = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        exclusion_text = f"{excluded} of {detectable} deviations excluded · " if detectable else ""
        progress.update(
            bar, advance=1, description=f"{exclusion_text}{record.implementation} {record.case} {record.dtype}"
        )

    def shown(self) -> tuple[Shown, ...]:
        """The exclusions and cited clauses of each implementation."""
        return tuple(exclusion.shown() for exclusion in self._exclusions.values())

    def close(self, ended_by: EndedBy | None) -> Report:
        """Close the ledger: the report with diagnoses. `ended_by`: what ended the run, if it is incomplete."""
        return self._ledger.close(tuple(self._diagnoses), self.shown(), ended_by)

    def _asking(self, name: str) -> AskInDtype:
        """Returns what asks an implementation again, for a diagnosis."""
        options = replace(self._run.options, threads=self._run.threads)
        return partial(ask_again, self._ready[name], options=options, logs=self._run.logs / "asked-again")

    @contextlib.contextmanager
    def closed_if_interrupted(self) -> Generator[None]:
        """Whatever ends the block early kills the workers, and the ledger is closed with what there is."""
        try:
            yield
        except BaseException as error:
            self._run.abort()
            for record in self._run.left():
                self._add(record)
            interrupt: EndedBy | None = "interrupt" if isinstance(error, KeyboardInterrupt) else None
            self._ledger.close(tuple(self._diagnoses), self.shown(), ended_by=interrupt)
            where = f"is in {self._ledger.path}, marked incomplete"
            if problem := self._ledger.problem:
                where = f"is not kept: {problem}"
            error.add_note(f"what was judged until then {where}" if self.answered else "nothing was judged")
            raise


def _exclusion(assignment: Assignment) -> Exclusion:
    stages = assignment.ready.implementation.capabilities.stages
    dtypes = {task.dtype for task in assignment.tasks}
    return Exclusion(assignment.name, dtypes, shows_all_stages=stages == "all")


def ask_again(ready: Ready, dtype: str, cases: Sequence[Case], *, options: RunOptions, logs: Path) -> list[Observation]:
    """Observe the implementation in these cases, which the oracle computes first; those alone that it answers
    before the run's time is over."""
    tasks = [task for task in plan(ready.implementation, list(cases)) if task.dtype == dtype and not task.opt_out]
    if not tasks:
        return []
    goldens = {task.case.id: compute(task.case, constants()) for task in tasks}
    options = replace(options, jobs=1, fail_fast=False)
    run = SuiteRun([Assignment(ready, tasks)], lambda case: goldens[case.id], options, logs)
    for _ in run:
        pass
    return run.observations(ready.implementation.name).of(dtype)
