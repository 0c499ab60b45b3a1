"""The page of changes: each run beside the one before it, as `conform compare` prints it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from encoder_conformance.compare.change import WORSE, Change
from encoder_conformance.compare.comparison import (
    Changed,
    Comparison,
    changed_machine,
    changed_versions,
    clauses_of,
)
from encoder_conformance.compare.show import last_line, transition
from encoder_conformance.site import contexts
from encoder_conformance.site.columns import Column
from encoder_conformance.site.contexts import anchor

_QUIET = frozenset({Change.WITHIN_NOISE, Change.SAME_BITS, Change.SAME_OUTCOME})
_MOST_CHECKS, _MOST_CLAUSES = 200, 12
_Labels = Mapping[tuple[str, str], str]


def changes_context(
    comparisons: Iterable[Comparison], names: Sequence[str], columns: Sequence[Column]
) -> dict[str, Any]:
    """`names`: of the runs, one more than there are comparisons, in the order of `columns`."""
    labels = {(column.run.name, column.judged.name): column.label for column in columns}
    pairs = pairwise(names)
    return {
        "comparisons": [
            _comparison(each, old, new, labels) for each, (old, new) in zip(comparisons, pairs, strict=True)
        ]
    }


def _comparison(comparison: Comparison, old: str, new: str, labels: _Labels) -> dict[str, Any]:
    counts = comparison.counts
    shown = [change for change in Change if any(count[change] for count in counts.values())]

    def link(changed: Changed) -> str:
        """The cell of the newer run, or of the older one where only that has it."""
        run = new if changed.new else old
        label = labels.get((run, changed.record.implementation), changed.record.implementation)
        return anchor(case=changed.record.case, impl=label)

    return {
        "old": old,
        "new": new,
        "verdict": last_line(comparison).plain,
        "worse": bool(comparison.worse),
        "reservations": comparison.reservations,
        "machine": changed_machine(comparison.old, comparison.new),
        "columns": [(change.value, change in WORSE) for change in shown],
        "rows": [(name, [count[change] for change in shown]) for name, count in counts.items()],
        "versions": changed_versions(comparison.old, comparison.new),
        "diagnoses": [contexts.diagnosis_context(each) for each in comparison.new_diagnoses],
        "groups": [
            _group(change, [each for each in comparison.changes if each.change is change], link)
            for change in shown
            if change not in _QUIET
        ],
    }


def _group(change: Change, changed: Sequence[Changed], link: Callable[[Changed], str]) -> dict[str, Any]:
    return {
        "name": change.value,
        "worse": change in WORSE,
        "count": len(changed),
        "clauses": [name for name, _ in clauses_of(each.record for each in changed).most_common(_MOST_CLAUSES)],
        "more": max(0, len(changed) - _MOST_CHECKS),
        "checks": [
            {
                "implementation": each.record.implementation,
                "case": each.record.case,
                "dtype": each.record.dtype,
                "check": each.record.check,
                "anchor": link(each),
                "transition": transition(each),
            }
            for each in changed[:_MOST_CHECKS]
        ],
    }
