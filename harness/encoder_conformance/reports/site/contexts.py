"""The values of the pages: implementations in the words of the terminal, exporters, changes, trends, scripts of failing
cases, and the detection matrix."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from encoder_conformance.implementation.choices import parse_variant
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.manifest import (
    Implementation,
    find_implementation,
    known_folders,
    read_implementation_manifest,
)
from encoder_conformance.judging.core.sensitivity import Sensitivity, read_sensitivity
from encoder_conformance.judging.records import Diagnosis
from encoder_conformance.judging.tally import Tally
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
from encoder_conformance.reports.compare.trend import Point, Trend
from encoder_conformance.reports.reproduce.failure import failure_of
from encoder_conformance.reports.reproduce.script import script_of
from encoder_conformance.reports.run.matrix import format_sigma
from encoder_conformance.reports.run.repeating import repeat_command, reproduce_command
from encoder_conformance.reports.run.terminal import diagnosis_rest
from encoder_conformance.reports.site.columns import Column
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import load, load_deviations


def web_links(links: Iterable[str]) -> list[str]:
    """The links that a browser only opens. A `javascript:` link would run."""
    return [link for link in links if link.startswith(("https://", "http://"))]


def anchor(**values: str) -> str:
    """The part of an address after #, as static/data.js reads it."""
    return urlencode(values)


def verdict(tally: Tally) -> str:
    """A sentence with the numbers of checks."""
    return f"{tally}." if tally.applicable else "Nothing was judged."


def diagnosis_context(each: Diagnosis) -> dict[str, Any]:
    """A diagnosis: the terminal's sentence, and its equations."""
    known = load_deviations()
    return {
        "dtype": each.dtype,
        "dtypes": each.dtype.split(", "),
        "confidence": each.confidence,
        "text": diagnosis_rest(each),
        "cases": each.cases,
        "links": [name for name in each.deviations if name in known],
        "equations": [
            {
                "stage": one.stage,
                "found": one.found,
                "specified": one.specified,
                "rms": format_sigma(one.rms),
                "specified_rms": format_sigma(one.specified_rms),
            }
            for one in each.equations
        ],
    }


def declared(name: str, count: int) -> dict[str, Any]:
    """A declared deviation, which so many checks show."""
    known = load_deviations().get(name)
    sentence, links = (known.sentence, web_links(known.links)) if known else ("", [])
    return {"name": name, "count": count, "sentence": sentence, "links": links}


def facts(column: Column) -> list[tuple[str, str]]:
    """Versions, settings, command and machine of an implementation."""
    return [
        ("framework", column.judged.framework),
        ("versions", column.judged.made_with),
        *((name, str(value)) for name, value in column.judged.settings.items()),
        ("command", shlex.join(column.judged.command)),
        ("run", f"{column.run.name}: {column.run.command}"),
        ("when", column.run.report.started),
        ("where", column.run.machine),
    ]


def commands(column: Column) -> tuple[str, str]:
    """The commands that ask for a case again and that write it as a script, with {case} and {dtype} to be filled in."""
    of = column.run.report, column.judged.name, "{case}", "{dtype}"
    texts = repeat_command(*of), reproduce_command(*of)
    again, script = (text.replace("'{case}'", "{case}").replace("'{dtype}'", "{dtype}") for text in texts)
    return again, script


def exporters_context(columns: Iterable[Column]) -> dict[str, Any]:
    """The values of the page: for each exporter its choices, and a column of each configuration."""
    exporters: dict[str, dict[str, Any]] = {}
    for column in columns:
        name, _ = parse_variant(column.judged.name)
        if (manifest := _manifest(name)) and manifest.capabilities.export:
            choices = [choice.name for choice in manifest.choices]
            exporter = {"name": name, "title": manifest.title, "choices": choices, "columns": []}
            exporters.setdefault(name, exporter)["columns"].append(column)
    return {"exporters": list(exporters.values())}


def _manifest(name: str) -> Implementation | None:
    """The manifest of an implementation of this name; None for one that is not installed here."""
    folder = known_folders().get(name)
    try:
        return read_implementation_manifest(folder) if folder else None
    except InputError:
        return None


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


_MOST_CHANGES, _MOST_CASES = 40, 6


def trends(columns: Iterable[Column]) -> Mapping[str, dict[str, Any]]:
    """Implementation → its trend over the runs, in the order in which they were named. One run is no trend."""
    by_name: dict[str, list[Column]] = {}
    for column in columns:
        by_name.setdefault(column.judged.name, []).append(column)
    found = {}
    for name, of_it in by_name.items():
        if len(of_it) == 1:
            continue
        trend = Trend(name, tuple(column.point for column in of_it))
        found[name] = {
            "columns": [(column, trend.same_bits(number), _bar(column.point)) for number, column in enumerate(of_it)],
            "newest": of_it[-1].label,
            "changes": trend.changes[:_MOST_CHANGES],
            "more": max(0, len(trend.changes) - _MOST_CHANGES),
            "most_cases": _MOST_CASES,
        }
    return found


def _bar(point: Point) -> list[tuple[str, str, str]]:
    """Class, left edge and width of each part, in percent of the applicable checks."""
    tally, left, parts = point.tally, 0.0, []
    for kind, count in (("good", tally.conforming), ("declared", tally.deviating), ("bad", tally.unexpected)):
        width = 100 * count / max(tally.applicable, 1)
        if width:
            parts.append((kind, f"{left:.2f}", f"{width:.2f}"))
        left += width
    return parts


def script_context(column: Column) -> dict[str, Any] | None:
    """Case, dtype, path and text of a script; None where nothing failed, or none can be made here.

    It is made of the adapter's source as it is now. Nothing is run, and no framework is needed: what exports a file
    first is left to `conform reproduce`.
    """
    if not column.unexpected:
        return None
    report = column.run.report.model_copy(update={"records": tuple(column.unexpected)})
    name, colon, choices = column.judged.name.partition(":")
    folder = Path(column.judged.folder)
    known = folder if folder.name == name and (folder / "impl.yaml").is_file() else name
    try:
        parse_variant(column.judged.name)
        found, implementation = find_implementation(f"{known}{colon}{choices}")
        if implementation.command[0] != "python" or implementation.capabilities.export:
            return None
        failure = failure_of(report, "*", None, Ready(implementation, found, implementation.command))
        text = script_of(failure)
    except InputError:
        return None
    record = failure.record
    return {"case": record.case, "dtype": record.dtype, "path": f"scripts/{column.slug}.py", "text": text}


AT_OUTPUT, IN_FLOAT64, INSIDE = 3, 2, 1


def kill_context(columns: Sequence[Column]) -> dict[str, Any]:
    """The values of the page. A field of the heat map says where a case sees it: at the output, or inside alone."""
    table, deviations = read_sensitivity(), load_deviations()
    every = [case for case in load().cases.values() if case.is_required]
    core = sorted((case for case in every if case.in_core), key=lambda case: case.id)
    seen = {case.id: _levels(table, case) for case in every}
    rows = []
    for name in sorted(table.deviations, key=lambda name: (deviations[name].kind, name)):
        deviation = deviations[name]
        rows.append(
            {
                "name": name,
                "kind": deviation.kind,
                "strip": _strip([seen[case.id].get(name, 0) for case in core]),
                "sentence": deviation.sentence,
                "unseen": deviation.unseen or "",
                "links": web_links(deviation.links),
                "cases": sum(name in seen[case.id] for case in every),
                "core": sum(name in seen[case.id] for case in core),
                "seen_in": [(column.label, column.page) for column in columns if _has(column, name)],
            }
        )
    return {"rows": rows, "cases": [case.id for case in core], "margin": f"{table.margin:.0f}"}


def _strip(levels: Sequence[int]) -> list[tuple[int, str]]:
    """Level → the SVG path of its fields in a row of the heat map."""
    at = {level: [x for x, each in enumerate(levels) if each == level] for level in (AT_OUTPUT, IN_FLOAT64, INSIDE)}
    return [(level, "".join(f"M{x} 0h1v1h-1z" for x in places)) for level, places in at.items() if places]


def _has(column: Column, name: str) -> bool:
    """Whether an implementation has a deviation: as declared, or by its diagnosis."""
    explained = (each for each in column.diagnoses if each.confidence == "explained")
    return name in column.deviations or any(name in each.deviations for each in explained)


def _levels(table: Sensitivity, case: Case) -> dict[str, int]:
    """Deviation → where this case sees it."""
    levels: dict[str, int] = {}
    for dtype in case.situation.dtypes:
        for check in case.situation.checks:
            level = INSIDE if check != "output" else IN_FLOAT64 if dtype == "float64" else AT_OUTPUT
            for name in table.names(table.sees(case, dtype, check)):
                levels[name] = max(levels.get(name, 0), level)
    return levels
