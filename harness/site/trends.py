"""The trend of an implementation of which a site has several runs: a row for each, and since which run what is so."""

from collections.abc import Iterable, Mapping
from typing import Any

from encoder_conformance.compare.trend import History, Trend, by_case
from encoder_conformance.report.matrix import format_sigma
from encoder_conformance.site.columns import Column
from encoder_conformance.site.contexts import anchor

_MOST_CHANGES, _MOST_CASES = 40, 6


def trends(columns: Iterable[Column]) -> Mapping[str, dict[str, Any]]:
    """Implementation → its trend over the runs, in the order in which they were named. One run is no trend."""
    by_name: dict[str, list[Column]] = {}
    for column in columns:
        by_name.setdefault(column.judged.name, []).append(column)
    return {name: _context(name, of_it) for name, of_it in by_name.items() if len(of_it) > 1}


def _context(name: str, columns: list[Column]) -> dict[str, Any]:
    trend = Trend(name, tuple(column.point for column in columns))
    newest = columns[-1].label
    return {
        "rows": [_row(trend, number, column) for number, column in enumerate(columns)],
        "changes": [_change(change, newest) for change in trend.changes[:_MOST_CHANGES]],
        "more": max(0, len(trend.changes) - _MOST_CHANGES),
    }


def _row(trend: Trend, number: int, column: Column) -> dict[str, Any]:
    point = column.point
    tally, same = point.tally, trend.same_bits(number)
    edges = [0.0]
    for count in (tally.conforming, tally.deviating, tally.unexpected):
        edges.append(edges[-1] + 100 * count / max(tally.applicable, 1))
    return {
        "label": point.label,
        "page": f"{column.slug}.html",
        "versions": ", ".join(f"{name} {version}" for name, version in column.judged.versions.items()),
        "conforming": tally.conforming,
        "deviating": tally.deviating,
        "unexpected": tally.unexpected,
        "largest": "" if point.largest is None else format_sigma(point.largest),
        "same": "" if same is None else f"{same[0]} of {same[1]}",
        "bar": [
            (kind, f"{begin:.2f}", f"{end - begin:.2f}")
            for kind, begin, end in zip(("good", "declared", "bad"), edges, edges[1:], strict=False)
            if end > begin
        ],
    }


def _change(change: History, newest: str) -> dict[str, Any]:
    cases = list(by_case(change.keys))
    return {
        "sentence": change.sentence,
        "worse": change.worse,
        "count": len(change.keys),
        "cases": [(case, anchor(case=case, impl=newest)) for case in cases[:_MOST_CASES]],
        "more": max(0, len(cases) - _MOST_CASES),
    }
