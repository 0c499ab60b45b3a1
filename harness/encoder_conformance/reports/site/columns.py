"""Reads runs, one after the other, into the columns of the matrix: one implementation of one run each, its records
compactly encoded."""

import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any

from encoder_conformance.judging.records import Diagnosis, Judged, Record, Report, Shown
from encoder_conformance.judging.tally import Tally
from encoder_conformance.judging.verdict import TensorVerdict
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.compare.trend import Point, explained_by, state_of
from encoder_conformance.reports.run.counts import Cell, larger
from encoder_conformance.reports.run.reading import read_report, report_file
from encoder_conformance.reports.site.coding import CODES, NO_RECORD, Rows, encode
from encoder_conformance.spec.outcome import Outcome

_MOST_IN_FULL = 4
"""How many tensors out of line of one check are kept in full. The others have their size."""


@dataclass(frozen=True)
class RunFacts:
    """A run without its records. `name`: its folder's."""

    name: str
    report: Report

    @property
    def cut_short(self) -> str:
        """Why the run is incomplete; "" if it is complete."""
        if self.report.complete:
            return ""
        return f"ended by the {self.report.ended_by}" if self.report.ended_by else "not complete"

    @property
    def command(self) -> str:
        """The command of the run."""
        return f"conform {shlex.join(self.report.arguments)}"

    @property
    def machine(self) -> str:
        """The machine of the run, and how it was used."""
        place = self.report.environment
        return (
            f"{place.processor}, {place.cpus} processors, {place.platform}, Python {place.python}, "
            f"conform {place.conform}, {place.threads_per_worker} thread{'s' * (place.threads_per_worker > 1)} each, "
            f"on {place.device}" + (f", seed {place.seed}" if place.seed else "")
        )


class Column:
    """`label` is unique in a site; `slug` is the name of its page."""

    def __init__(self, run: RunFacts, judged: Judged) -> None:
        self.run, self.judged = run, judged
        self.label = self.slug = judged.name
        self.diagnoses: list[Diagnosis] = [each for each in run.report.diagnoses if each.implementation == judged.name]
        self.shown: Shown | None = next((s for s in run.report.shown if s.implementation == judged.name), None)
        self.cells: dict[tuple[str, str], Cell] = {}
        """(case, dtype) → the worst outcome of its checks, and the largest rms."""
        self._rows: dict[tuple[str, str], list[int]] = {}
        """(case, dtype) → the numbers of its checks' rows."""
        self.levels: dict[str, Counter[Outcome]] = {}
        self.reasons: Counter[str] = Counter()
        self.deviations: Counter[str] = Counter()
        self.unexpected: list[Record] = []
        self.largest: float | None = None
        self.point = Point(run.name)
        self.script: dict[str, Any] | None = None
        """The smallest failing case as a script: its case, dtype, path and text."""
        self._explanations = explained_by(self.diagnoses, judged.name)
        self._checks = Rows("check", "tensors", "text", "deviations")

    @property
    def page(self) -> str:
        """The path of its page."""
        return f"implementations/{self.slug}.html"

    @property
    def tally(self) -> Tally:
        """The counts of its checks."""
        return self.point.tally

    def add(self, record: Record) -> None:
        """Add a record of this implementation, which is not kept."""
        self.point.add(record, state_of(record, self._explanations))
        self.levels.setdefault(record.level, Counter())[record.outcome] += 1
        if record.outcome == Outcome.UNSUPPORTED:
            self.reasons[record.message] += 1
        self.largest = larger(self.largest, record.rms)
        self.deviations.update(record.deviations)
        if record.outcome.category == "bad":
            self.unexpected.append(record.model_copy(update={"tensors": ()}))
        key = record.case, record.dtype
        self.cells.setdefault(key, Cell()).take(record.outcome, record.rms)
        self._rows.setdefault(key, []).append(self._checks.add(_row(record)))

    def codes(self, keys: Iterable[tuple[str, str]]) -> dict[str, str]:
        """The outcome and the size of each of these cells, a character each."""
        cells = [self.cells.get(key, Cell()) for key in keys]
        outcomes = (CODES[cell.worst] if cell.worst else NO_RECORD for cell in cells)
        return {"cells": "".join(outcomes), "sigmas": "".join(encode(cell.rms) for cell in cells)}

    def details(self, keys: Iterable[tuple[str, str]]) -> dict[str, Any]:
        """Every check, and how many each cell has. `keys`: the cases and dtypes of the matrix, in its order."""
        rows = [self._rows.get(key, []) for key in keys]
        return {"checks": self._checks.written(list(chain.from_iterable(rows))), "counts": list(map(len, rows))}


def _row(record: Record) -> dict[str, Any]:
    """The values of a check by name, as static/data.js has them: those that it lacks, or that others tell, left out."""
    row: dict[str, Any] = {"check": record.check, "outcome": CODES[record.outcome]}
    if record.message and record.outcome is not Outcome.PASS:
        row["text"] = record.message
    if record.outcome.category == "unasked":
        return row
    row["tensors"] = tuple(tensor.tensor for tensor in record.tensors)
    row["tensor_rms"] = "".join(encode(tensor.rms) for tensor in record.tensors)
    row["tensor_max"] = "".join(encode(tensor.max) for tensor in record.tensors)
    if record.outcome is Outcome.PASS:  # most records: their largest sizes are among those of their tensors
        return row
    row |= {"rms": _short(record.rms), "max": _short(record.max)}
    if record.deviations:
        row["deviations"] = record.deviations
    if record.distance is not None:
        row["distance"] = _short(record.distance)
    if out := [number for number, each in enumerate(record.tensors) if not each.conforms]:
        row |= {"out": out, "off": [_in_full(number, record.tensors[number]) for number in out[:_MOST_IN_FULL]]}
    return row


def _in_full(number: int, tensor: TensorVerdict) -> dict[str, Any]:
    found: dict[str, Any] = {"n": number, "rms": _short(tensor.rms), "max": _short(tensor.max)}
    if tensor.problem:
        found["problem"] = tensor.problem.text
    elif tensor.worst_index is not None:
        found |= {"at": tensor.worst_index, "observed": tensor.observed, "expected": tensor.expected}
        found["sigma"] = _short(tensor.sigma)
    if tensor.heat:
        found["heat"] = ["".join(map(encode, row)) for row in tensor.heat]
    return found


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


MOST_RUNS = 500


def read_columns(folders: Sequence[Path]) -> list[Column]:
    """A column for each implementation of each run, in the order given. Of one run at a time records are in memory.

    Raises InputError for what is no report, and for a run that is given twice.
    """
    if len(folders) > MOST_RUNS:
        raise InputError(f"{len(folders)} runs; a page shows at most {MOST_RUNS}", where="conform report")
    seen: dict[str, Path] = {}
    columns: list[Column] = []
    for folder, name in zip(folders, run_names(folders), strict=True):
        report = read_report(folder)
        digest = hashlib.sha256(report_file(folder).read_bytes()).hexdigest()
        if digest in seen:
            hint = "name each run once"
            raise InputError(f"is the same run as {seen[digest]}", where=str(folder), hint=hint)
        seen[digest] = folder
        facts = RunFacts(name, report.model_copy(update={"records": ()}))
        found = {judged.name: Column(facts, judged) for judged in report.implementations}
        for record in report.records:
            found[record.implementation].add(record)
        columns += found.values()
    _label(columns)
    return columns


def run_names(folders: Sequence[Path]) -> list[str]:
    """A name for each run: its folder's, with as many folders above as tell it from the others."""
    resolved = [folder.resolve() for folder in folders]
    for depth in range(1, 6):
        names = ["/".join(folder.parts[-depth:]) for folder in resolved]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in resolved]


def _label(columns: Sequence[Column]) -> None:
    """Tell columns apart: an implementation of several runs has its run's name beside its own."""
    counted = [column.judged.name for column in columns]
    slugs: set[str] = set()
    for column in columns:
        if counted.count(column.judged.name) > 1:
            column.label = f"{column.judged.name} ({column.run.name})"
        slug = re.sub("[^A-Za-z0-9]", "-", column.label).strip("-").lower()[:80] or "implementation"
        numbered = chain([slug], (f"{slug}-{number}" for number in count(2)))
        column.slug = next(each for each in numbered if each not in slugs)
        slugs.add(column.slug)
