"""Keeps what a run writes true at any moment: every planned check as not-run first, then each record as it is judged.

`report.json` is written twice: when the run begins, and when it ends, of the records in the journal. A run that is
killed in between leaves both, and `report/reading.py` reads them together.
"""

import datetime
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import encoder_conformance
from encoder_conformance.engine.runner import SuiteRun
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.interpreter import Missing
from encoder_conformance.implementation.lock import lock_of
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.asking import not_run
from encoder_conformance.judging.records import (
    Absent,
    Diagnosis,
    EndedBy,
    Judged,
    Record,
    Report,
    RunEnvironment,
    Shown,
)
from encoder_conformance.oracle.golden.store import case_digest
from encoder_conformance.platform.files import replacing
from encoder_conformance.platform.processors import processor
from encoder_conformance.reports.run.counts import RunCounts
from encoder_conformance.reports.run.folder import NAME
from encoder_conformance.reports.run.journal import NAME as JOURNAL
from encoder_conformance.reports.run.journal import Journal
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.outcome import Outcome

_CASE_DIGITS = 16
"""Of a case's digest, in hexadecimal: enough to see that a case changed."""


def case_digests(tasks: Iterable[Task]) -> dict[str, str]:
    """Case → a digest of what it specifies, for each case of these tasks."""
    cases = {task.case.id: task.case for task in tasks}
    return {name: case_digest(case, constants())[:_CASE_DIGITS] for name, case in cases.items()}


class Ledger:
    """Collects records. The report is `complete` only if `close` finds every check in the journal.

    Nothing raises if a file cannot be written: `problem` says which and why, and `counts` counts everything all the
    same.
    """

    def __init__(self, out: Path, assignments: Sequence[Assignment], absent: Sequence[Missing], run: SuiteRun) -> None:
        """Begin the report in the folder `out`. What an earlier run left there is gone before anything else is."""
        self.path = out / NAME
        self._assignments, self._run = assignments, run
        self._absent = tuple(Absent(name=m.implementation.name, reason=m.reason, hint=m.hint) for m in absent)
        self._tasks = [task for assignment in assignments for task in assignment.tasks]
        self._numbers = {task.key: number for number, task in enumerate(self._tasks)}
        self._environment = _environment(self._tasks, run)
        self._cases = case_digests(self._tasks)
        self._locks = {assignment.name: lock_of(assignment.ready) for assignment in assignments}
        self._early: dict[int, Record] = {}
        self._started, self._problem = _now(), ""
        self.counts = RunCounts(assignments)
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            self._problem = f"{self.path}: {error.strerror}"
        self._journal = Journal(out / JOURNAL, len(self._tasks))
        self._write(self._report(complete=False))

    def keep(self, record: Record) -> None:
        """Have the disk hold a record that is not final. A process that is killed leaves it."""
        number = self._numbers[record.key]
        self._journal.append(number, record.model_dump_json().encode())
        self._early[number] = record

    def add(self, record: Record) -> Task:
        """Add a record. Returns its task."""
        number = self._numbers[record.key]
        if self._early.pop(number, None) is not record:
            self._journal.append(number, record.model_dump_json().encode())
        self.counts.add(number, self._tasks[number], record.model_copy(update={"tensors": ()}))
        return self._tasks[number]

    def close(
        self,
        diagnoses: tuple[Diagnosis, ...] = (),
        shown: tuple[Shown, ...] = (),
        ended_by: EndedBy | None = None,
    ) -> Report:
        """Write the final report. Returns it without its records."""
        whole = not self._journal.problem and not self.counts.outcomes[Outcome.NOT_RUN]
        cut_off = ended_by not in (None, "budget", "first failure")  # perhaps in a diagnosis
        complete = whole and not cut_off
        report = self._report(
            complete=complete,
            diagnoses=diagnoses,
            shown=shown,
            suspicious=self.counts.suspicious(),
            ended_by=None if complete else ended_by,
        )
        self._write(report)
        self._journal.close()
        return report

    @property
    def problem(self) -> str:
        """Which file could not be written and why; "" if all could."""
        return self._problem or self._journal.problem

    def _report(self, *, complete: bool, **end: Any) -> Report:
        """The report without its records. `end`: its fields that are known when the run has ended."""
        session = self._run.session
        return Report(
            complete=complete,
            started=self._started,
            finished=_now() if complete else None,
            arguments=tuple(sys.argv[1:]),
            environment=self._environment,
            implementations=tuple(
                Judged(
                    name=assignment.name,
                    title=assignment.ready.implementation.title,
                    framework=assignment.ready.implementation.framework,
                    command=assignment.ready.command,
                    versions=session(assignment.name).versions,
                    settings=session(assignment.name).worker.settings,
                    log=str(session(assignment.name).log),
                    folder=str(assignment.ready.folder),
                    shows_all_stages=assignment.ready.implementation.capabilities.stages == "all",
                    lock=self._locks[assignment.name],
                    peak_memory=self._run.peak_memory(assignment.name),
                    isolated=self._run.options.limits.isolate,
                )
                for assignment in self._assignments
            ),
            absent=self._absent,
            records=(),
            cases=self._cases,
            shard=self._run.options.shard,
            **end,
        )

    def _write(self, report: Report) -> None:
        """Write one record per line, so that the whole text is never in memory."""
        if self._problem:
            return
        before, records, after = report.model_dump_json(indent=1).partition('"records": []')
        assert records  # a quote inside a string is escaped: there is no other such place
        self._journal.sync()
        try:
            with replacing(self.path) as file:
                file.write(f'{before}"records": [\n'.encode())
                for number, task in enumerate(self._tasks):
                    file.write(b",\n" if number else b"")
                    file.write(self._journal.read(number) or not_run(task).model_dump_json().encode())
                file.write(f"\n ]{after}\n".encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._problem = f"{self.path}: {error.strerror}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _environment(tasks: Sequence[Task], run: SuiteRun) -> RunEnvironment:
    """The machine, versions and sizes of a run."""
    return RunEnvironment(
        conform=encoder_conformance.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        processor=processor(),
        cpus=os.cpu_count() or 1,
        jobs=run.jobs,
        threads_per_worker=run.threads,
        memory_per_worker=run.options.limits.memory,
        device=run.options.device,
        seed=run.options.seed,
        specification={
            "cases": len({task.case.id for task in tasks}),
            "layers": len({task.case.layer.layer for task in tasks}),
            "situations": len({task.case.situation.situation for task in tasks}),
        },
    )
