"""Reads runs, one after the other, into the columns of the matrix."""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any

from encoder_conformance.judging.records import Report
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.compare.comparison import (
    AS_BEFORE,
    WORSE,
    Changed,
    Comparison,
    changed_machine,
    changed_versions,
    clauses_cited,
)
from encoder_conformance.reports.compare.show import last_line, transition
from encoder_conformance.reports.run.reading import read_report, report_file
from encoder_conformance.reports.site.columns import Column, RunFacts
from encoder_conformance.reports.site.contexts import anchor

MOST_RUNS = 500


def read_columns(folders: Sequence[Path]) -> list[Column]:
    """A column for each implementation of each run, in the order given. Of one run at a time records are in memory.

    Raises InputError for what is no report, and for a run that is given twice.
    """
    if len(folders) > MOST_RUNS:
        raise InputError(f"{len(folders)} runs; a page shows at most {MOST_RUNS}", where="conform report")
    seen: dict[str, Path] = {}
    columns: list[Column] = []
    names = run_names(folders)
    for folder, name in zip(folders, names, strict=True):
        report = read_report(folder)
        digest = hashlib.sha256(report_file(folder).read_bytes()).hexdigest()
        if digest in seen:
            hint = "name each run once"
            raise InputError(f"is the same run as {seen[digest]}", where=str(folder), hint=hint)
        seen[digest] = folder
        columns += _columns(report, name)
    _label(columns)
    return columns


def _columns(report: Report, name: str) -> list[Column]:
    facts = RunFacts(name, report.model_copy(update={"records": ()}))
    columns = {judged.name: Column(facts, judged) for judged in report.implementations}
    for record in report.records:
        if record.implementation not in columns:
            problem = f"has a record of {record.implementation}, which is not among its implementations"
            raise InputError(problem, where=name, hint="the file was changed by hand, or is of something else")
        columns[record.implementation].add(record)
    return list(columns.values())


def run_names(folders: Sequence[Path]) -> list[str]:
    """A name for each run: its folder's, with as many folders above as tell it from the others."""
    resolved = [folder.resolve() for folder in folders]
    for depth in range(1, 6):
        names = ["/".join(folder.parts[-depth:]) for folder in resolved]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in resolved]


def _label(columns: Iterable[Column]) -> None:
    """Tell columns apart: an implementation of several runs has its run's name beside its own."""
    columns = list(columns)
    counted = [column.judged.name for column in columns]
    slugs: set[str] = set()
    for column in columns:
        if counted.count(column.judged.name) > 1:
            column.label = f"{column.judged.name} ({column.run.name})"
        slug = "".join(each if each.isascii() and each.isalnum() else "-" for each in column.label).strip("-").lower()
        slug = slug[:80] or "implementation"
        numbered = chain([slug], (f"{slug}-{number}" for number in count(2)))
        column.slug = next(each for each in numbered if each not in slugs)
        slugs.add(column.slug)


_MOST_CHECKS, _MOST_CLAUSES = 200, 12


def changes_context(
    comparisons: Iterable[Comparison], names: Sequence[str], columns: Sequence[Column]
) -> dict[str, Any]:
    """The values of the page. `names`: of the runs, one more than there are comparisons, in the order of `columns`."""
    labels = {(column.run.name, column.judged.name): column.label for column in columns}

    def link(changed: Changed, old: str, new: str) -> str:
        """The cell of the newer run, or of the older one where only that has it."""
        record = changed.record
        run = new if changed.new else old
        return anchor(case=record.case, impl=labels.get((run, record.implementation), record.implementation))

    return {
        "comparisons": [(old, new, each) for (old, new), each in zip(pairwise(names), comparisons, strict=True)],
        "most_checks": _MOST_CHECKS,
        "worse": WORSE,
        "as_before": AS_BEFORE,
        "link": link,
        "last_line": last_line,
        "transition": transition,
        "machine": changed_machine,
        "versions": changed_versions,
        "clauses": _clauses,
    }


def _clauses(changed: Iterable[Changed]) -> list[str]:
    return [name for name, _ in clauses_cited(each.record.case for each in changed).most_common(_MOST_CLAUSES)]
