"""Keeps `report.json` true at any moment: every planned check is in it from the start, as not-run."""

import datetime
import os
import platform
import sys
import time
from pathlib import Path

from pydantic import ValidationError

import harness
from harness.errors import InputError
from harness.files import replace_file
from harness.impl.interpreter import Missing
from harness.judge.outcome import Outcome
from harness.lines import Share
from harness.report.model import Absent, Diagnosis, Environment, Judged, Record, Report
from harness.runner import Run, not_run

_SECONDS_BETWEEN_WRITES = 2.0


class Ledger:
    """Collects records into a report. `complete` turns true only when `close` finds that nothing is missing."""

    def __init__(
        self, out: Path, shares: list[Share], absent: list[Missing], run: Run, environment: Environment
    ) -> None:
        self.path = out / "report.json"
        self._shares, self._run, self._environment = shares, run, environment
        self._absent = tuple(Absent(name=m.implementation.name, reason=m.reason, hint=m.hint) for m in absent)
        self._records: dict[tuple[str, ...], Record] = {}
        for share in shares:
            for task in share.tasks:
                self._records[_key(not_run(task))] = not_run(task)
        self._started = _now()
        self._diagnoses: tuple[Diagnosis, ...] = ()
        self._written = 0.0
        self._write(complete=False)

    def add(self, record: Record) -> None:
        self._records[_key(record)] = record
        if time.monotonic() - self._written > _SECONDS_BETWEEN_WRITES:
            self._write(complete=False)

    def close(self, diagnoses: tuple[Diagnosis, ...] = ()) -> Report:
        self._diagnoses = diagnoses
        return self._write(complete=all(r.outcome != Outcome.NOT_RUN for r in self._records.values()))

    def _write(self, *, complete: bool) -> Report:
        session = self._run.session
        report = Report(
            complete=complete,
            started=self._started,
            finished=_now() if complete else None,
            arguments=tuple(sys.argv[1:]),
            environment=self._environment,
            implementations=tuple(
                Judged(
                    name=share.ready.implementation.name,
                    title=share.ready.implementation.title,
                    framework=share.ready.implementation.framework,
                    command=share.ready.command,
                    versions=session(share.ready.implementation.name).versions,
                    settings=session(share.ready.implementation.name).settings,
                    log=str(session(share.ready.implementation.name).log),
                )
                for share in self._shares
            ),
            absent=self._absent,
            records=tuple(self._records.values()),
            diagnoses=self._diagnoses,
        )
        replace_file(self.path, report.model_dump_json(indent=1).encode())
        self._written = time.monotonic()
        return report


def environment(shares: list[Share], run: Run, device: str, seed: int) -> Environment:
    cases = {task.case.id: task.case for share in shares for task in share.tasks}
    return Environment(
        conform=harness.__version__,
        python=platform.python_version(),
        platform=platform.platform(),
        processor=_processor(),
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
    """The report of an earlier run."""

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


def _key(record: Record) -> tuple[str, ...]:
    return record.implementation, record.case, record.dtype, record.check


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
