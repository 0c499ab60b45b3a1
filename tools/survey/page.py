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
    if deviating := list(_deviation_points(rows, scripts)):
        parts.append("Deviates by:\n\n" + "\n".join(deviating) + "\n")
    if opt_outs := list(_opt_out_points(rows, scripts)):
        parts.append("Not asked, or failed:\n\n" + "\n".join(opt_outs) + "\n")
    if others := list(_other_findings(implementation, rows, scripts)):
        parts.append("Beside the cases of the table:\n\n" + "\n".join(others) + "\n")
    return "\n".join(parts)


def _other_findings(implementation: Implementation, rows: list[SurveyRow], scripts: Path) -> Iterator[str]:
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
        yield _bullet(*_entry_lines(entry, "", scripts))
    scripts_named = {entry.script for entry in entries_of_manifest}
    for path in scripts_of(implementation.name, scripts):
        if path.name not in scripts_named:
            yield _bullet(_script_line(path.name, scripts))


def _find_entry(row: SurveyRow, deviation: str) -> ManifestEntry | None:
    return next((entry for entry in _read_manifest(row).deviations if entry.deviation == deviation), None)


def _deviation_points(rows: list[SurveyRow], scripts: Path) -> Iterator[str]:
    by_deviation: dict[str, list[tuple[SurveyRow, DeviationCount]]] = {}
    for row in rows:
        for count in row.deviates:
            by_deviation.setdefault(count.deviation, []).append((row, count))
    for deviation, pairs in sorted(by_deviation.items()):
        variants = _variants_text([row for row, _ in pairs], rows)
        distances = (
            _distance(dtype, [count for _, count in pairs if count.dtype == dtype]) for dtype in _dtypes(pairs)
        )
        entry = _find_entry(pairs[0][0], deviation)
        lines = _entry_lines(entry, "", scripts) if entry else [f"{catalogue()[deviation].sentence}. **unexplained**"]
        yield _bullet(f"`{deviation}`{variants}. {lines[0]}", f"{'; '.join(distances)}.", *lines[1:])


def _bullet(*lines: str) -> str:
    return "- " + "\n  ".join(lines)


def _entry_lines(entry: ManifestEntry, counts_text: str, scripts: Path) -> list[str]:
    """The lines of a manifest's entry; `counts_text` follows its reason."""
    lines = [f"{NEW if entry.new else ''}{entry.reason}{counts_text}. {entry.link}"]
    return [*lines, _script_line(entry.script, scripts)] if entry.script else lines


def _script_line(script: str, scripts: Path) -> str:
    sentence = " ".join((ast.get_docstring(ast.parse((scripts / script).read_text(encoding="utf-8"))) or "").split())
    return f"[{script}](findings/{script}): {sentence}"


def _variants_text(some_rows: Iterable[SurveyRow], rows: list[SurveyRow]) -> str:
    """The variants of `some_rows`; "" if they are all of `rows`."""
    variants = sorted({short(row) for row in some_rows})
    return "" if len(variants) == len(rows) else f" ({', '.join(f'`{variant}`' for variant in variants)})"


def _read_manifest(row: SurveyRow) -> Implementation:
    return find_implementation(row.variant)[1]


def _dtypes(pairs: Iterable[tuple[SurveyRow, DeviationCount]]) -> list[str]:
    return sorted({count.dtype for _, count in pairs}, reverse=True)


def _distance(dtype: str, counts: list[DeviationCount]) -> str:
    distances = [count.sigma for count in counts if count.sigma is not None]
    largest = max(counts, key=lambda count: count.checks)
    size = f"up to {max(distances):.2g} σ" if distances else "not finite"
    return f"{dtype}: {size}, {largest.checks} checks ({largest.cases})"


def _opt_out_points(rows: list[SurveyRow], scripts: Path) -> Iterator[str]:
    entries_by_reason = entries(rows[0].implementation)
    by_text: dict[str, list[tuple[SurveyRow, ReasonCount]]] = {}
    for row in rows:
        for reason in (*row.unsupported, *row.failed):
            by_text.setdefault(reason.text, []).append((row, reason))
    for text, pairs in by_text.items():
        variants = _variants_text([row for row, _ in pairs], rows)
        checks, cases = max(((reason.checks, reason.cases) for _, reason in pairs), key=lambda counts: counts[0])
        if pairs[0][1].kind in WHATEVER_IS_DECLARED:
            yield f"- {text}{variants}: {checks} checks. {RULE}"
            continue
        counts_text = f"{variants}: {checks} checks ({cases})"
        yield _bullet(
            *(
                _entry_lines(entries_by_reason[text], counts_text, scripts)
                if text in entries_by_reason
                else [f"{text}{counts_text}. **unexplained**"]
            )
        )


_PAGE = """# Findings: what the layers that people use do

Generated by `python -m tools.survey` of the rows that it keeps in docs/findings.json; a test checks that
the page is what they say. A row is one way of running an implementation (`conform run --impl NAME:key=value`), judged
on every required case in float64 and float32, as far as it has them. A check that *deviates as declared* is not
skipped: it meets the specification as the deviation changes it, within the noise of the dtype, and its
distance in σ is from the specification without it. What is not asked has its reason and a
link below; what an implementation does not claim (training, say) is not counted.

{matrix}
{waiting}
A script in docs/findings/ shows its finding with the framework alone, in a few lines: what a user sees. **New** is what
nothing public was seen to say when it was found here: no issue, no page of the documentation. The number of checks is
that of the variant that has the most. *Beside the cases of the table* are those of 16 bits and those that are
recommended, which `conform run --level optional` and `tox -m release` judge too.

{sections}"""
