"""Reads what a run has written: its report, and of a run that did not end the records that it left beside it.

A report may have 100,000 records. `StoredReport` has all but them in memory, and reads them one after another.
"""

import contextlib
import json
import math
from collections.abc import Generator, Iterator
from pathlib import Path
from sys import intern
from typing import Any

from pydantic import ValidationError

from encoder_conformance.judging.records import Record, Report
from encoder_conformance.platform.clean import cleaned
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.run.folder import LATEST, LOGS, NAME
from encoder_conformance.reports.run.journal import NAME as JOURNAL
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import is_stage

_LEVELS = 16
"""Levels of a report within each other, settings included."""
_AGAIN = "run conform run again"
_RECORDS = b'"records": ['
"""The end of the line after which the ledger writes one record a line."""
_KEY = ("implementation", "case", "dtype", "check")

_OUTCOMES = frozenset(outcome.value for outcome in Outcome)

Raw = dict[str, Any]
"""A record as JSON, with at least what identifies it, and its outcome."""


class StoredReport:
    """The report of an earlier run. `report` has everything but the records.

    Of a run that was killed there are the records that were judged until then, and it says that it is incomplete.
    """

    def __init__(self, out: Path) -> None:
        """`out`: its folder or file, or the folder in which `latest` is. Raises InputError."""
        self._path = report_file(out)
        if self._path.exists() and not self._path.is_file():  # a pipe or a device may never end
            raise InputError("is no regular file", where=str(self._path), hint="give the folder of a run")
        with self._readable():
            report: Any = json.loads(b"".join(line for line in self._lines() if not line.startswith(b'{"')))
            _refuse_newer(report, self._path)
            # A file that somebody has indented anew is read whole.
            self._whole = report.get("records") if isinstance(report, dict) else None
            found = cleaned(_finite({**report, "records": []} if isinstance(report, dict) else report), _LEVELS)
            self.report = Report.model_validate(found)
        self._judged = {} if self.report.complete else _judged(self._path.with_name(JOURNAL))

    def records(self) -> Iterator[Raw]:
        """Every record, in the order of the plan. Raises InputError."""
        seen = set[int]()
        with (self._path.with_name(JOURNAL) if self._judged else self._path).open("rb") as journal:
            for record in self._whole or self._planned():
                if not (
                    isinstance(record, dict) and all(isinstance(record.get(key), str) for key in (*_KEY, "outcome"))
                ):
                    raise InputError("has a record that is none", where=str(self._path), hint=_AGAIN)
                if problem := self._contradicted_by(record, seen):
                    raise InputError(f"is no report: {problem}", where=str(self._path), hint=_AGAIN)
                begin = self._judged.get(_key(record))
                if begin is None:
                    yield record
                else:
                    journal.seek(begin)
                    yield json.loads(journal.readline())

    def _contradicted_by(self, record: Raw, seen: set[int]) -> str:
        """What no run writes beside what came before it; "" if it may. `seen`: of the keys of those before."""
        key = " ".join(record[name] for name in _KEY)
        if hash(key) in seen:
            return f"it has two records of {key}"
        seen.add(hash(key))
        if record["outcome"] not in _OUTCOMES:
            return f"{key} has the outcome {record['outcome']!r}"
        if self.report.complete and record["outcome"] == Outcome.NOT_RUN:
            return f"it says that it is complete, and {key} was not run"
        return ""

    def record(self, raw: Raw) -> Record:
        """Validate a record. Raises InputError."""
        with self._readable():
            record = Record.model_validate(cleaned(_finite(raw), _LEVELS))
            names = [*([record.stage] if record.stage else []), *(tensor.tensor for tensor in record.tensors)]
            unknown = [name for name in names if not is_stage(name)]
            if record.check in ("output", "stages") and unknown:
                raise ValueError(f"{record.case} has no stage {unknown[0]!r}")
            if record.outcome is Outcome.PASS and (wrong := [each for each in record.tensors if not each.conforms]):
                raise ValueError(f"{record.case} passes, and its {wrong[0].tensor} does not conform")
            if any(number is not None and number < 0 for number in (record.rms, record.max, record.seconds)):
                raise ValueError(f"{record.case} has an error or a time below 0")
            return record

    def _planned(self) -> Iterator[Any]:
        with self._readable():
            for line in self._lines():
                if line.startswith(b'{"'):
                    yield json.loads(line.rstrip().removesuffix(b","))

    def _lines(self) -> Iterator[bytes]:
        """The lines of the file. Those that begin with a brace and a quote are a record each."""
        among_records = False
        with self._path.open("rb") as file:
            for line in file:
                is_record = among_records and line.startswith(b'{"')
                among_records = is_record or line.rstrip().endswith(_RECORDS) or (among_records and not line.strip())
                yield line if is_record else b" " + line

    @contextlib.contextmanager
    def _readable(self) -> Generator[None]:
        """Raises InputError for what the block cannot read, or what it finds to be no report."""
        hint = _AGAIN
        try:
            yield
            return
        except OSError as error:
            problem = "is not there: its run has planned nothing yet, or ended before it had"
            if self._path.exists() or not self._path.with_name(LOGS).is_dir():
                problem = f"cannot be read: {error.strerror}"
                hint = "conform run writes it; --out names its folder"
        except ValidationError as error:
            problem = f"is no report of this version: {error.errors()[0]['msg']}"
        except (ValueError, RecursionError) as error:
            problem = f"is no report: {error}"
        raise InputError(problem, where=str(self._path), hint=hint)


def read_report(out: Path) -> Report:
    """The whole report of an earlier run, as `StoredReport` finds it. Raises InputError."""
    stored = StoredReport(out)
    return stored.report.model_copy(update={"records": tuple(map(stored.record, stored.records()))})


def _finite(value: Any) -> Any:
    """The value of JSON. Raises ValueError for a number in it that is none: no report of ours has one."""
    match value:
        case float() if not math.isfinite(value):
            raise ValueError(f"it has the number {value}")
        case dict():
            for each in value.values():
                _finite(each)
        case list():
            for each in value:
                _finite(each)
    return value


def _refuse_newer(written: Any, path: Path) -> None:
    field, known = Report.model_fields["version"], Report.model_fields["format"].default
    if isinstance(written, dict) and written.get("format") == known:
        version = written.get("version")
        if isinstance(version, int) and version > field.default:
            problem = f"is of format {version}, and this conform reads formats up to {field.default}"
            raise InputError(problem, where=str(path), hint="pip install --upgrade encoder-conformance")


def report_file(out: Path) -> Path:
    """The file of a run. `out`: its folder or file, or the folder in which `latest` is."""
    if not out.is_dir():
        return out
    return out / LATEST / NAME if (out / LATEST).is_dir() and not (out / NAME).exists() else out / NAME


def _key(record: Raw) -> tuple[str, ...]:
    return tuple(intern(record[name]) for name in _KEY)


def _judged(path: Path) -> dict[tuple[str, ...], int]:
    """Key of each record in a journal → where its line begins. The last line of a run that was killed may be a part of
    one."""
    found: dict[tuple[str, ...], int] = {}
    begin = 0
    try:
        with path.open("rb") as lines:
            for line in lines:
                with contextlib.suppress(ValueError):  # pydantic's ValidationError is one
                    found[Record.model_validate_json(line).key] = begin
                begin += len(line)
    except OSError:
        return {}
    return found
