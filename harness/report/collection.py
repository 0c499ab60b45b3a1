"""Collects the records of a run as they come: into the ledger, and onto the terminal."""

import contextlib
import time
from collections import Counter

from rich.progress import Progress, TaskID

from encoder_conformance.core.exclusion import Exclusion
from encoder_conformance.judge.outcome import EXPECTED, Outcome
from encoder_conformance.report.closing import row
from encoder_conformance.report.ledger import Ledger
from encoder_conformance.report.terminal import console
from encoder_conformance.results import EndedBy, Record, Report, Shown
from encoder_conformance.runner import Run
from encoder_conformance.scheduling import Assignment

_SHARE_FOR_DIAGNOSIS, _MOST_FOR_DIAGNOSIS = 0.25, 8.0
"""What is left of a run's time, of that, and in seconds, for the diagnosis once something has failed."""


class Collection:
    """What a run has shown. `excludes`: the goldens are the frozen ones, of which is known what each check sees."""

    def __init__(self, assignments: list[Assignment], ledger: Ledger, run: Run, *, excludes: bool) -> None:
        self._run, self._ledger = run, ledger
        self._exclusions = {each.name: Exclusion(each.name, each.tasks) for each in assignments} if excludes else {}
        self._waiting = Counter({each.name: len(each.tasks) for each in assignments})
        self._records: dict[str, list[Record]] = {each.name: [] for each in assignments}
        self._begun = time.monotonic()
        self.answered = self.failed = False

    def collect(self, progress: Progress) -> None:
        """Take every record. An implementation that is done has its line on the terminal at once."""
        several = len(self._waiting) > 1
        bar = progress.add_task("starting workers", total=sum(self._waiting.values()))
        with contextlib.closing(iter(self._run)) as records:
            for record in records:
                self._add(record)
                self._advance(progress, bar, record)
                if several and not self._waiting[record.implementation]:
                    line = row(record.implementation, self._records[record.implementation], self._begun)
                    console().print(line, highlight=False, soft_wrap=True)

    def _add(self, record: Record) -> None:
        name = record.implementation
        self._records[name].append(self._ledger.add(record))
        self._waiting[name] -= 1
        self.answered = self.answered or record.outcome != Outcome.UNSUPPORTED
        if self._exclusions:
            self._exclusions[name].add(record)
        if record.outcome not in EXPECTED and not self.failed:
            self.failed = True
            self._leave_time_for_diagnosis()

    def _leave_time_for_diagnosis(self) -> None:
        if self._run.until is not None:
            whole = self._run.until - self._begun
            self._run.end_at(self._run.until - min(_MOST_FOR_DIAGNOSIS, _SHARE_FOR_DIAGNOSIS * whole))

    def _advance(self, progress: Progress, bar: TaskID, record: Record) -> None:
        counts = [exclusion.count for exclusion in self._exclusions.values()]
        excluded, due = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
        said = f"{excluded} of {due} deviations excluded · " if due else ""
        progress.update(bar, advance=1, description=f"{said}{record.implementation} {record.case} {record.dtype}")

    def shown(self) -> tuple[Shown, ...]:
        return tuple(exclusion.shown() for exclusion in self._exclusions.values())

    def close(self, ended_by: EndedBy | None) -> Report:
        """The report, diagnosed. `ended_by`: what ended it, if anything is missing."""
        diagnoses = self._run.diagnoses(self._run.until)
        return self._ledger.close(diagnoses, self.shown(), ended_by)

    def interrupted(self) -> None:
        """The report of what was judged until now."""
        for record in self._run.left():
            self._add(record)
        self._ledger.close(shown=self.shown(), ended_by="interrupt")
