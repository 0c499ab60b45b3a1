"""The page of the exporters: what became of each configuration of those that took part."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from encoder_conformance.implementation.choices import parse_variant
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.manifest import find_implementation, known_folders, read_implementation_manifest
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.compare.trend import Point, Trend
from encoder_conformance.reports.reproduce.failure import failure_of
from encoder_conformance.reports.reproduce.script import script_of
from encoder_conformance.reports.run.repeating import reproduce_command
from encoder_conformance.reports.site.columns import Column


def exporters_context(columns: Iterable[Column]) -> dict[str, Any]:
    """The values of the page: for each exporter its choices, and a column of each configuration."""
    by_name: dict[str, list[Column]] = {}
    for column in columns:
        name, _ = parse_variant(column.judged.name)
        if _exports(name):
            by_name.setdefault(name, []).append(column)
    return {"exporters": [_exporter(name, of_it) for name, of_it in by_name.items()]}


def _exports(name: str) -> bool:
    """Whether an implementation of this name exports files. One that is not installed here is not known to."""
    folder = known_folders().get(name)
    try:
        return folder is not None and read_implementation_manifest(folder).capabilities.export
    except InputError:
        return False


def _exporter(name: str, columns: list[Column]) -> dict[str, Any]:
    manifest = read_implementation_manifest(known_folders()[name])
    choices = [choice.name for choice in manifest.choices]
    return {"name": name, "title": manifest.title, "choices": choices, "columns": columns}


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


def smallest_command(column: Column) -> str:
    """The command that writes the smallest failing case; "" if none failed."""
    return reproduce_command(column.run.report, column.judged.name, "*", None) if column.unexpected else ""


def script_context(column: Column) -> dict[str, Any] | None:
    """Case, dtype, path and text of a script; None where nothing failed, or none can be made here.

    It is made of the adapter's source as it is now. Nothing is run, and no framework is needed: what exports a file
    first is left to `conform reproduce`.
    """
    if not column.unexpected:
        return None
    report = column.run.report.model_copy(update={"records": tuple(column.unexpected)})
    name, _, choices = column.judged.name.partition(":")
    folder = Path(column.judged.folder)
    known = folder if folder.name == name and (folder / "impl.yaml").is_file() else name
    try:
        parse_variant(column.judged.name)
        found, implementation = find_implementation(f"{known}{':' if choices else ''}{choices}")
        if implementation.command[0] != "python" or implementation.capabilities.export:
            return None
        failure = failure_of(report, "*", None, Ready(implementation, found, implementation.command))
        text = script_of(failure)
    except InputError:
        return None
    record = failure.record
    return {"case": record.case, "dtype": record.dtype, "path": f"scripts/{column.slug}.py", "text": text}
