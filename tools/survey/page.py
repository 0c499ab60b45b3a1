"""Generates docs/findings.md from the stored rows."""

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from encoder_conformance.implementation.choices import variant_suffix
from encoder_conformance.implementation.limitations import ManifestEntry
from encoder_conformance.implementation.manifest import (
    Implementation,
    find_implementation,
    read_implementation_manifest,
)
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.platform.paths import IMPLS
from tools import ROOT
from tools.pages.tables import markdown
from tools.survey.results import WHATEVER_IS_DECLARED, DeviationCount, ReasonCount, SurveyRow

KEPT = ROOT / "docs" / "findings.json"
PAGE = ROOT / "docs" / "findings.md"
SCRIPTS = ROOT / "docs" / "findings"
RULE = "[specs/README.md](../specs/README.md), V-5 to V-7"
NEW = "**New.** "


def page(rows: Collection[SurveyRow], waiting: Collection[str], scripts: Path = SCRIPTS) -> str:
    """The page. `waiting`: the variants without a row; `scripts`: the folder docs/findings/."""
    rows_by_name: dict[str, list[SurveyRow]] = {}
    for row in rows:
        rows_by_name.setdefault(row.implementation, []).append(row)
    names = [
        name
        for name, own_rows in sorted(rows_by_name.items())
        if any(_has_findings(row) for row in own_rows) or scripts_of(name, scripts)
    ]
    return _PAGE.format(
        matrix=matrix(rows),
        waiting=_waiting_text(waiting),
        sections="\n".join(
            _section(name, sorted(rows_by_name[name], key=lambda row: row.variant), scripts) for name in names
        ),
    )


def _waiting_text(waiting: Collection[str]) -> str:
    """A line about the variants that were not judged yet; "" if there are none."""
    if not waiting:
        return ""
    names = ", ".join(f"`{name}`" for name in sorted({variant.partition(":")[0] for variant in waiting}))
    return f"\nNot judged yet: {len(waiting)} ways to run {names}.\n"


def matrix(rows: Collection[SurveyRow]) -> str:
    """A line for each row."""
    lines = []
    for row in sorted(rows, key=lambda row: row.variant):
        deviating = ", ".join(sorted({f"`{deviation.deviation}`" for deviation in row.deviates}))
        lines.append(
            (
                f"`{short(row)}`",
                _versions(row),
                f"{row.passed} / {row.applicable}",
                f"{row.rms:.2f}" if row.rms is not None else "–",
                deviating or "–",
                str(sum(reason.checks for reason in row.unsupported) or "–"),
            )
        )
    return markdown(("implementation", "version", "conforms", "largest rms σ", "deviates by", "not asked"), lines)


def short(row: SurveyRow) -> str:
    """The implementation, with its choices if they are not the default ones."""
    implementation = read_implementation_manifest(IMPLS / row.implementation)
    return row.implementation + variant_suffix(implementation.choices, row.choices)


@cache
def entries(implementation: str) -> dict[str, ManifestEntry]:
    """Reason → entry of `unsupported` in the manifest."""
    return {entry.reason: entry for entry in read_implementation_manifest(IMPLS / implementation).unsupported}


def scripts_of(name: str, folder: Path) -> list[Path]:
    """The scripts in docs/findings/ about an implementation."""
    return sorted(folder.glob(f"{name}-*.py"))


def _has_findings(row: SurveyRow) -> bool:
    return bool(row.deviates or row.unsupported or row.failed)


def _versions(row: SurveyRow) -> str:
    shown = [f"{name} {version}" for name, version in row.versions.items() if name != "numpy"]
    return ", ".join(shown)


def _section(name: str, rows: list[SurveyRow], scripts: Path) -> str:
    implementation = read_implementation_manifest(IMPLS / name)
    parts = [f"## {implementation.title}\n\n`{name}`, {_versions(rows[0])}. {implementation.homepage}\n"]
    if deviating := list(_deviation_rows(rows)):
        parts.append(markdown(("deviates by", "because", "float64", "float32", "see"), deviating) + "\n")
    if opt_outs := list(_opt_out_rows(rows)):
        parts.append(markdown(("not asked, or failed", "checks", "see"), opt_outs) + "\n")
    if others := list(_other_findings(implementation, rows, scripts)):
        parts.append(markdown(("beside the cases above", "see"), others) + "\n")
    return "\n".join(parts)


def _other_findings(implementation: Implementation, rows: list[SurveyRow], scripts: Path) -> Iterator[tuple[str, str]]:
    """The manifest's entries about formats and levels outside the rows, and scripts that no entry names."""
    reasons_shown = {reason.text for row in rows for reason in (*row.unsupported, *row.failed)}
    reasons_shown |= {
        entry.reason for row in rows for count in row.deviates if (entry := _find_entry(row, count.deviation))
    }
    entries_of_manifest = (*implementation.unsupported, *implementation.deviations)
    others = {
        entry.reason: entry for entry in entries_of_manifest if entry.script and entry.reason not in reasons_shown
    }
    for entry in others.values():
        yield _reason(entry), _links(entry)
    scripts_named = {entry.script for entry in entries_of_manifest}
    for path in scripts_of(implementation.name, scripts):
        if path.name not in scripts_named:
            sentence = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
            yield sentence, _script_link(path.name)


def _find_entry(row: SurveyRow, deviation: str) -> ManifestEntry | None:
    return next((entry for entry in _read_manifest(row).deviations if entry.deviation == deviation), None)


def _deviation_rows(rows: list[SurveyRow]) -> Iterator[tuple[str, ...]]:
    by_deviation: dict[str, list[tuple[SurveyRow, DeviationCount]]] = {}
    for row in rows:
        for count in row.deviates:
            by_deviation.setdefault(count.deviation, []).append((row, count))
    for deviation, pairs in sorted(by_deviation.items()):
        variants = _variants_text([row for row, _ in pairs], rows)
        entry = _find_entry(pairs[0][0], deviation)
        distances = (_distance([each for _, each in pairs if each.dtype == dtype]) for dtype in ("float64", "float32"))
        why = _reason(entry) if entry else f"{catalogue()[deviation].sentence}. **unexplained**"
        yield f"`{deviation}`{variants}", why, *distances, _links(entry) if entry else "–"


def _reason(entry: ManifestEntry) -> str:
    return f"{NEW if entry.new else ''}{entry.reason}"


def _links(entry: ManifestEntry) -> str:
    """The source, and the script that shows it."""
    return ", ".join([f"[source]({entry.link})", *([_script_link(entry.script)] if entry.script else [])])


def _script_link(script: str) -> str:
    return f"[script](findings/{script})"


def _variants_text(some_rows: Iterable[SurveyRow], rows: list[SurveyRow]) -> str:
    """The variants of `some_rows`; "" if they are all of `rows`."""
    variants = sorted({short(row).partition(":")[2] or "as it is" for row in some_rows})
    return "" if len(variants) == len(rows) else f" ({'; '.join(variants)})"


def _read_manifest(row: SurveyRow) -> Implementation:
    return find_implementation(row.variant)[1]


def _distance(counts: list[DeviationCount]) -> str:
    """How far from the specification, at most, and in how many checks."""
    if not counts:
        return "–"
    distances = [count.sigma for count in counts if count.sigma is not None]
    size = f"{max(distances):.2g} σ" if distances else "not finite"
    return f"{size}, {max(count.checks for count in counts)} checks"


def _opt_out_rows(rows: list[SurveyRow]) -> Iterator[tuple[str, str, str]]:
    entries_by_reason = entries(rows[0].implementation)
    by_text: dict[str, list[tuple[SurveyRow, ReasonCount]]] = {}
    for row in rows:
        for reason in (*row.unsupported, *row.failed):
            by_text.setdefault(reason.text, []).append((row, reason))
    for text, pairs in by_text.items():
        variants = _variants_text([row for row, _ in pairs], rows)
        checks = str(max(reason.checks for _, reason in pairs))
        if pairs[0][1].kind in WHATEVER_IS_DECLARED:
            yield f"{text}{variants}", checks, RULE
        elif (entry := entries_by_reason.get(text)) is not None:
            yield f"{_reason(entry)}{variants}", checks, _links(entry)
        else:
            yield f"{text}{variants}. **unexplained**", checks, "–"


_PAGE = """# Findings: what the layers that people use do

Each row of the first table is one way of running an implementation (`conform run --impl NAME:key=value`), in every
required case. A check that *deviates as declared* was judged too: it is the specification with that deviation, within
noise, and its σ is the distance from the specification without it. Whatever was not asked has its reason below.

{matrix}
{waiting}
A script shows its finding with the framework alone. **New**: nothing public said so when it was found here. The number
of checks is that of the variant that has the most. *Beside the cases above* are cases of 16 bits and recommended ones.
`python -m tools.survey` makes this page of docs/findings.json.

{sections}"""
