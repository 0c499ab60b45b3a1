"""The page of changes: each run beside the one before it, as `conform compare` prints it."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from encoder_conformance.reports.compare.change import AS_BEFORE, WORSE
from encoder_conformance.reports.compare.comparison import (
    Changed,
    Comparison,
    changed_machine,
    changed_versions,
    clauses_of,
)
from encoder_conformance.reports.compare.show import last_line, transition
from encoder_conformance.reports.site.columns import Column
from encoder_conformance.reports.site.contexts import anchor

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
    return [name for name, _ in clauses_of(each.record for each in changed).most_common(_MOST_CLAUSES)]
