"""The page of the kill matrix: every deviation of the catalogue against the cases of the core."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from encoder_conformance.judging.core.sensitivity import Sensitivity, read_sensitivity
from encoder_conformance.reports.site.columns import Column
from encoder_conformance.reports.site.contexts import web_links
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import load, load_deviations

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
                "seen_in": [
                    (column.label, f"implementations/{column.slug}.html") for column in columns if _has(column, name)
                ],
            }
        )
    layers = Counter(case.layer.layer for case in core)
    return {"rows": rows, "cases": [case.id for case in core], "layers": layers, "margin": f"{table.margin:.0f}"}


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
