"""The trend of an implementation of which a site has several runs: a row for each, and since which run what is so."""

from collections.abc import Iterable, Mapping
from typing import Any

from encoder_conformance.reports.compare.trend import Point, Trend
from encoder_conformance.reports.site.columns import Column

_MOST_CHANGES, _MOST_CASES = 40, 6


def trends(columns: Iterable[Column]) -> Mapping[str, dict[str, Any]]:
    """Implementation → its trend over the runs, in the order in which they were named. One run is no trend."""
    by_name: dict[str, list[Column]] = {}
    for column in columns:
        by_name.setdefault(column.judged.name, []).append(column)
    return {name: _context(name, of_it) for name, of_it in by_name.items() if len(of_it) > 1}


def _context(name: str, columns: list[Column]) -> dict[str, Any]:
    trend = Trend(name, tuple(column.point for column in columns))
    return {
        "columns": [(column, trend.same_bits(number), _bar(column.point)) for number, column in enumerate(columns)],
        "newest": columns[-1].label,
        "changes": trend.changes[:_MOST_CHANGES],
        "more": max(0, len(trend.changes) - _MOST_CHANGES),
        "most_cases": _MOST_CASES,
    }


def _bar(point: Point) -> list[tuple[str, str, str]]:
    """Class, left edge and width of each part, in percent of the applicable checks."""
    tally, left, parts = point.tally, 0.0, []
    for kind, count in (("good", tally.conforming), ("declared", tally.deviating), ("bad", tally.unexpected)):
        width = 100 * count / max(tally.applicable, 1)
        if width:
            parts.append((kind, f"{left:.2f}", f"{width:.2f}"))
        left += width
    return parts
