"""Collects the records of a run as they arrive, for the ledger and the terminal."""

import contextlib
import time
from collections import Counter

from rich.progress import Progress, TaskID

from encoder_conformance.core.exclusion import Exclusion
from encoder_conformance.judge.outcome import EXPECTED, Outcome
from encoder_conformance.report.closing import implementation_line
from encoder_conformance.report.ledger import Ledger
from encoder_conformance.report.terminal import console
from encoder_conformance.results import EndedBy, Record, Report, Shown
from encoder_conformance.runner import Run
from encoder_conformance.scheduling import Assignment

_SHARE_FOR_DIAGNOSIS, _MOST_FOR_DIAGNOSIS = 0.25, 8.0
"""The time reserved for the diagnosis once a check has failed: a share of the run's time, at most these seconds."""


class Collection:
    """The records of a run. `excludes`: count exclusions, which needs frozen goldens, whose sensitivity is known."""

    def __init__(self, assignments: list[Assignment], ledger: Ledger, run: Run, *, excludes: bool) -> None:
        self._run, self._ledger = run, ledger
        self._exclusions = {each.name: Exclusion(each.name, each.tasks) for each in assignments} if excludes else {}
        self._waiting = Counter({each.name: len(each.tasks) for each in assignments})
        self._records: dict[str, list[Record]] = {each.name: [] for each in assignments}
        self._begun = time.monotonic()
        self.answered = self.failed = False

    def collect(self, progress: Progress) -> None:
        """Collect every record. Prints a line for each implementation when its checks are done."""
        several = len(self._waiting) > 1
        bar = progress.add_task("starting workers", total=sum(self._waiting.values()))
        with contextlib.closing(iter(self._run)) as records:
            for record in records:
                self._add(record)
                self._advance(progress, bar, record)
                if several and not self._waiting[record.implementation]:
                    line = implementation_line(record.implementation, self._records[record.implementation], self._begun)
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
            self._reserve_time_for_diagnosis()

    def _reserve_time_for_diagnosis(self) -> None:
        if self._run.until is not None:
            budget = self._run.until - self._begun
            self._run.end_at(self._run.until - min(_MOST_FOR_DIAGNOSIS, _SHARE_FOR_DIAGNOSIS * budget))

    def _advance(self, progress: Progress, bar: TaskID, record: Record) -> None:
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
        diagnoses = self._run.diagnoses(self._run.until)
        return self._ledger.close(diagnoses, self.shown(), ended_by)

    def interrupted(self) -> None:
        """Close the ledger of an interrupted run, with the records so far."""
        for record in self._run.left():
            self._add(record)
        self._ledger.close(shown=self.shown(), ended_by="interrupt")
