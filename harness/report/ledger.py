"""Keeps `report.json` valid at any moment: it lists every planned check from the start, as not-run."""

import datetime
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from pydantic import ValidationError

import encoder_conformance
from encoder_conformance.asking import not_run
from encoder_conformance.errors import InputError
from encoder_conformance.files import replacing
from encoder_conformance.impl.interpreter import Missing
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.results import Absent, Diagnosis, EndedBy, Environment, Judged, Record, Report, Shown
from encoder_conformance.runner import Run
from encoder_conformance.scheduling import Assignment

_SECONDS_BETWEEN_WRITES = 2.0
_SHARE_OF_TIME = 0.02
"""The share of a run's time that rewriting the report may take."""


class Ledger:
    """Collects records into a report. The report is `complete` only if `close` finds no check missing.

    The verdicts of single tensors are most of a report. They are spooled to disk, so that memory does not grow.
    """

    def __init__(
        self,
        out: Path,
        assignments: list[Assignment],
        absent: list[Missing],
        run: Run,
        environment: Environment,
    ) -> None:
        self.path = out / "report.json"
        self._assignments, self._run, self._environment = assignments, run, environment
        self._absent = tuple(Absent(name=m.implementation.name, reason=m.reason, hint=m.hint) for m in absent)
        self._records: dict[tuple[str, ...], Record] = {}
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115  # it is deleted with the ledger
        self._spooled: dict[tuple[str, ...], tuple[int, int]] = {}
        self._spool_size = 0
        for assignment in assignments:
            for task in assignment.tasks:
                self._records[task.key] = not_run(task)
        self._started = _now()
        self._next_write = 0.0
        self._write(self._report(complete=False))

    def add(self, record: Record) -> Record:
        """Add a record. Returns it without the verdicts of single tensors."""
        key, data = record.key, record.model_dump_json().encode()
        summary = self._records[key] = record.model_copy(update={"tensors": ()})
        self._spooled[key] = self._spool_size, len(data)
        self._spool.write(data)
        self._spool_size += len(data)
        if time.monotonic() > self._next_write:
            self._write(self._report(complete=False))
        return summary

    def close(
        self,
        diagnoses: tuple[Diagnosis, ...] = (),
        shown: tuple[Shown, ...] = (),
        ended_by: EndedBy | None = None,
    ) -> Report:
        """Write the final report. Returns it without the verdicts of single tensors."""
        complete = all(record.outcome != Outcome.NOT_RUN for record in self._records.values())
        changes = {"diagnoses": diagnoses, "shown": shown, "ended_by": None if complete else ended_by}
        report = self._report(complete=complete).model_copy(update=changes)
        self._write(report)
        return report

    def _report(self, *, complete: bool) -> Report:
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
                    settings=session(assignment.name).settings,
                    log=str(session(assignment.name).log),
                )
                for assignment in self._assignments
            ),
            absent=self._absent,
            records=tuple(self._records.values()),
        )

    def _write(self, report: Report) -> None:
        """Write one record per line, from the spool, so that the whole text is never in memory."""
        begun = time.monotonic()
        without_records = report.model_copy(update={"records": ()}).model_dump_json(indent=1)
        before, records, after = without_records.partition('"records": []')
        assert records  # a quote inside a string is escaped: there is no other such place
        with replacing(self.path) as file:
            file.write(f'{before}"records": [\n'.encode())
            for number, (key, record) in enumerate(self._records.items()):
                file.write(b",\n" if number else b"")
                file.write(self._line(key, record))
            file.write(f"\n ]{after}\n".encode())
        self._spool.seek(self._spool_size)
        now = time.monotonic()
        self._next_write = now + max(_SECONDS_BETWEEN_WRITES, (now - begun) / _SHARE_OF_TIME)

    def _line(self, key: tuple[str, ...], record: Record) -> bytes:
        if key not in self._spooled:
            return record.model_dump_json().encode()
        offset, size = self._spooled[key]
        self._spool.seek(offset)
        return self._spool.read(size)


def environment(assignments: list[Assignment], run: Run, device: str, seed: int) -> Environment:
    """The machine, versions and sizes of a run, for its report."""
    cases = {task.case.id: task.case for assignment in assignments for task in assignment.tasks}
    return Environment(
        conform=encoder_conformance.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        processor=processor(),
        cpus=os.cpu_count() or 1,
        jobs=run.jobs,
        threads_per_worker=run.threads,
        device=device,
        seed=seed,
        specification={
            "cases": len(cases),
            "layers": len({case.layer.layer for case in cases.values()}),
            "situations": len({case.situation.situation for case in cases.values()}),
        },
    )


def read_report(out: Path) -> Report:
    """The report of an earlier run; `out` is its folder or file. Raises InputError."""
    path = out / "report.json" if out.is_dir() else out
    try:
        return Report.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", where=str(path), hint="conform run writes it; --out names its folder"
        ) from None
    except ValidationError as error:
        raise InputError(
            f"is no report of this version: {error.errors()[0]['msg']}", where=str(path), hint="run conform run again"
        ) from None


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def processor() -> str:
    """The model name of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
