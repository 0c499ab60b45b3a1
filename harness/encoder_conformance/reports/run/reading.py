"""Reads what a run has written: its report, and of a run that did not end the records that it left beside it.

A report may have 100,000 records. `StoredReport` has all but them in memory, and reads them one after another.
"""

import contextlib
import json
import math
import os
import re
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from encoder_conformance.judging.records import Record, Report
from encoder_conformance.platform.clean import LONGEST, cleaned, line
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import require_regular
from encoder_conformance.reports.run.credible import Credible, contradiction_of
from encoder_conformance.reports.run.folder import LATEST, LOGS, NAME
from encoder_conformance.reports.run.journal import NAME as JOURNAL

_LEVELS = 16
"""Levels of a report within each other, settings included."""
_AGAIN, _FOLDER = "run conform run again", "give the folder of a run"
_RECORDS = b'"records": ['
"""The end of the line after which the ledger writes one record a line."""
_LONGEST_LINE = 1 << 27
"""Bytes of a line, and so of a report that somebody has written without any: ours of 100,000 records has as many."""
_SHOWN = 300
"""Characters of a problem that are shown: it may quote the file."""
_UNCLEAN = re.compile(r"NaN|Infinity|[eE]\+?[0-9]{3}|[0-9]{19}|\\|weights_only")
"""What a record may have that has to be cleaned, or refused: a number that is none or too large, an escape."""


class StoredReport:
    """The report of an earlier run. `report` has everything but the records.

    Of a run that was killed there are the records that were judged until then, and it says that it is incomplete.
    """

    def __init__(self, out: Path) -> None:
        """`out`: its folder or file, or the folder in which `latest` is. Raises InputError."""
        self._path = report_file(out)
        require_regular(self._path, str(self._path), _FOLDER)
        self._read: tuple[int, ...] = ()
        with self._readable():
            report: Any = json.loads(b"".join(line for line in self._lines() if not line.startswith(b'{"')))
            _refuse_newer(report, self._path)
            # A file that somebody has indented anew is read whole.
            self._whole = report.get("records") if isinstance(report, dict) else None
            if self._whole is not None and not isinstance(self._whole, list):
                raise ValueError("records: it is no list")
            found = {**report, "records": []} if isinstance(report, dict) else report
            self.report = Report.model_validate_json(_clean_json(found), strict=True)
            if problem := contradiction_of(self.report):
                raise ValueError(problem)
        journal = self._path.with_name(JOURNAL)
        require_regular(journal, str(journal), _FOLDER)
        with self._readable():
            self._judged = {} if self.report.complete else _judged(journal)

    def records(self) -> Iterator[Record]:
        """Every record, in the order of the plan. Raises InputError."""
        credible = Credible(self.report)
        with (self._path.with_name(JOURNAL) if self._judged else self._path).open("rb") as journal:
            for number, text in enumerate(map(json.dumps, self._whole) if self._whole else self._planned()):
                record = self._record(text, number)
                if (begin := self._judged.get(record.key)) is not None:
                    journal.seek(begin)
                    record = self._record(journal.readline().decode(), number)
                if problem := credible.contradiction(record):
                    what = f"is no report: records: {line(' '.join(record.key), _SHOWN)}: {line(problem, _SHOWN)}"
                    raise InputError(what, where=str(self._path), hint=_AGAIN)
                yield record

    def _record(self, text: str, number: int) -> Record:
        with self._readable(f"records[{number}]"):
            is_clean = text.isprintable() and len(text) < LONGEST and not _UNCLEAN.search(text)
            return Record.model_validate_json(text if is_clean else _clean_json(json.loads(text)), strict=True)

    def _planned(self) -> Iterator[str]:
        """The text of each record."""
        with self._readable():
            for each in self._lines():
                if each.startswith(b'{"'):
                    yield each.rstrip().removesuffix(b",").decode()

    def _lines(self) -> Iterator[bytes]:
        """The lines of the file. Those that begin with a brace and a quote are a record each.

        Raises InputError where it is not the file any more that was read first: a run may have replaced it.
        """
        among_records = False
        with self._path.open("rb") as file:
            status = os.fstat(file.fileno())
            found = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if self._read not in ((), found):
                raise InputError("was replaced while it was read", where=str(self._path), hint="ask again")
            self._read = found
            for each in _lines_of(file):
                is_record = among_records and each.startswith(b'{"')
                among_records = is_record or each.rstrip().endswith(_RECORDS) or (among_records and not each.strip())
                yield each if is_record else b" " + each

    @contextlib.contextmanager
    def _readable(self, key: str = "") -> Generator[None]:
        """Raises InputError for what the block cannot read, or what it finds to be no report; `key`: what it reads."""
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
            problem = f"is no report of this version: {_first_of(error, key)}"
        except (ValueError, RecursionError) as error:
            problem = f"is no report: {f'{key}: ' if key else ''}{error}"
        raise InputError(line(problem, _SHOWN), where=str(self._path), hint=hint)


def read_report(out: Path) -> Report:
    """The whole report of an earlier run, as `StoredReport` finds it. Raises InputError."""
    stored = StoredReport(out)
    return stored.report.model_copy(update={"records": tuple(stored.records())})


def _clean_json(value: Any) -> str:
    """The JSON of a value, with every text cleaned. Raises ValueError for a number that no report of ours has."""
    return json.dumps(cleaned(_finite(value), _LEVELS))


def _first_of(error: ValidationError, key: str) -> str:
    """Its first problem, with its place. `key`: of what was validated."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = key
    for each in first["loc"]:
        place += f"[{each}]" if isinstance(each, int) else f"{'.' if place else ''}{each}"
    return f"{place}: {first['msg']}" if place else first["msg"]


def _finite(value: Any) -> Any:
    """The value. Raises ValueError for a number in it that is none, or that no file of ours needs."""
    match value:
        case float() if not math.isfinite(value):
            raise ValueError(f"it has the number {value}")
        case int() if abs(value) > sys.float_info.max:
            raise ValueError("it has a number of more than 308 digits")
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


def _lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file. Raises ValueError for one that is too long to be read into memory."""
    while each := file.readline(_LONGEST_LINE + 1):
        if len(each) > _LONGEST_LINE:
            raise ValueError(f"it has a line of more than {_LONGEST_LINE >> 20} MiB")
        yield each


def _judged(path: Path) -> dict[tuple[str, ...], int]:
    """Key of each record in a journal → where its line begins. The last line of a run that was killed may be a part of
    one."""
    found: dict[tuple[str, ...], int] = {}
    begin = 0
    try:
        with path.open("rb") as lines:
            for each in _lines_of(lines):
                with contextlib.suppress(ValueError):  # pydantic's ValidationError is one
                    found[Record.model_validate_json(each).key] = begin
                begin += len(each)
    except OSError:
        return {}
    return found
