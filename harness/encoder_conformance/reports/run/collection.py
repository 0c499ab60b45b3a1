"""Collects the records of a run as they arrive, for the ledger and the terminal."""

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial

from rich.progress import Progress, TaskID

from encoder_conformance.engine.runner import SuiteRun
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.judging.core.order import Exclusion
from encoder_conformance.judging.observation import Observation
from encoder_conformance.judging.records import Diagnosis, EndedBy, Record, Report
from encoder_conformance.oracle.golden.build import compute, constants_for
from encoder_conformance.platform.errors import InputError, fault_of_machine
from encoder_conformance.reports.run.last_lines import implementation_line
from encoder_conformance.reports.run.ledger import Ledger
from encoder_conformance.reports.run.terminal import console, record_line
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.outcome import EXPECTED, Outcome
from encoder_conformance.subjects.plan import plan
from encoder_conformance.worker.launch import log_of

_SHARE_FOR_DIAGNOSIS, _MOST_FOR_DIAGNOSIS = 0.25, 8.0
"""The time reserved for the diagnosis once a check has failed: a share of the run's time, at most these seconds."""


class Collection:
    """The records of a run. `excludes`: whether the golden of a case is frozen, so that its sensitivity is known.

    Exclusions are counted of implementations that are asked no other case.
    """

    def __init__(
        self, assignments: list[Assignment], ledger: Ledger, run: SuiteRun, *, excludes: Callable[[Case], bool]
    ) -> None:
        self._run, self._ledger = run, ledger
        self._exclusions: dict[str, Exclusion] = {}
        for each in assignments:
            if not all(excludes(task.case) for task in each.tasks):
                continue
            shows_all_stages = each.ready.implementation.capabilities.stages == "all"
            dtypes = {task.dtype for task in each.tasks}
            self._exclusions[each.name] = Exclusion(each.name, dtypes, shows_all_stages=shows_all_stages)
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
                if self._run.options.verbose:
                    console().print(record_line(record), soft_wrap=True)
                self._advance(progress, bar, record)
                standing = standings[record.implementation]
                if not standing.left and not standing.failed:
                    self._run.observations(record.implementation).forget()
                if len(standings) > 1 and not standing.left and not self._run.options.quiet:
                    line = implementation_line(record.implementation, standing, self._begun)
                    console().print(line, soft_wrap=True)

    def diagnose(self, progress: Progress) -> None:
        """Diagnose every implementation, one after the other. What is interrupted leaves those that were done."""
        bar = progress.add_task("", total=len(self._ready), visible=self.failed)
        for name in self._ready:
            progress.update(bar, description=f"diagnosing {name}; Ctrl-C ends it")
            again = partial(self._ask_again, self._ready[name])
            found = self._run.observations(name).diagnoses(name, self._run.options.until, again)
            self._keep_traces(name, found)
            self._diagnoses += found
            progress.update(bar, advance=1)

    def _keep_traces(self, name: str, found: Iterable[Diagnosis]) -> None:
        """Write a log of the faults of ours that ended diagnoses; the report has the same."""
        if traces := [each.fault.trace for each in found if each.fault]:
            with contextlib.suppress(OSError):
                log_of(self._run.logs, f"{name}-diagnosis").write_text("\n".join(traces), encoding="utf-8")

    def _add(self, record: Record) -> None:
        task = self._ledger.add(record)
        self.answered = self.answered or record.outcome != Outcome.UNSUPPORTED
        if exclusion := self._exclusions.get(record.implementation):
            exclusion.add(task.case, record)
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

    def close(self, ended_by: EndedBy | None) -> Report:
        """Close the ledger: the report with diagnoses. `ended_by`: what ended the run, if it is incomplete."""
        shown = tuple(exclusion.shown() for exclusion in self._exclusions.values())
        return self._ledger.close(tuple(self._diagnoses), shown, ended_by)

    def _ask_again(self, ready: Ready, dtype: str, cases: Sequence[Case]) -> list[Observation]:
        """Observe the implementation in these cases, for a diagnosis. The oracle computes them first; those alone that
        it answers before the run's time is over."""
        tasks = [task for task in plan(ready.implementation, list(cases)) if task.dtype == dtype and not task.opt_out]
        if not tasks:
            return []
        judged_by = constants_for([FORMATS[dtype]])
        asked = {task.case.id: task.case for task in tasks}
        goldens = {name: compute(case, judged_by) for name, case in asked.items()}
        options = replace(self._run.options, threads=self._run.threads, jobs=1, fail_fast=False)
        logs = self._run.logs / "asked-again"
        run = SuiteRun([Assignment(ready, tasks)], lambda case: goldens[case.id], options, logs)
        for _ in run.records():
            pass
        return run.observations(ready.implementation.name).of(dtype)

    @contextlib.contextmanager
    def closed_if_interrupted(self) -> Generator[None]:
        """Whatever ends the block early kills the workers, and the ledger is closed with what there is."""
        try:
            yield
        except BaseException as error:
            self._run.abort()
            for record in self._run.left():
                self._add(record)
            self.close(ended_by(error))
            where = f"is in {self._ledger.path}, marked incomplete"
            if problem := self._ledger.problem:
                where = f"is not kept: {problem}"
            error.add_note(f"what was judged until then {where}" if self.answered else "nothing was judged")
            raise


def ended_by(error: BaseException) -> EndedBy | None:
    """What ends a run early; None for what the user is told instead of a result."""
    if isinstance(error, InputError):
        return None
    if fault_of_machine(error):
        return "fault of the machine"
    return "interrupt" if isinstance(error, KeyboardInterrupt) else "fault of the harness"
