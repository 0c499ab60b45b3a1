"""docs/findings.md, and the table of README.md, of the rows that are kept."""

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from encoder_conformance.deviations.catalogue import catalogue
from encoder_conformance.docs.tables import markdown
from encoder_conformance.errors import InputError
from encoder_conformance.impl.choices import variant_suffix
from encoder_conformance.impl.limitations import Entry
from encoder_conformance.impl.manifest import Implementation, find_implementation, read_implementation_manifest
from encoder_conformance.paths import IMPLS, ROOT
from encoder_conformance.survey.results import WHATEVER_IS_DECLARED, ReasonCount, Row, Seen

KEPT = ROOT / "docs" / "findings.json"
PAGE = ROOT / "docs" / "findings.md"
SCRIPTS = ROOT / "docs" / "findings"
RULE = "[specs/README.md](../specs/README.md), V-5 to V-7"
NEW = "**New.** "


def page(rows: Collection[Row], waiting: Collection[str], scripts: Path = SCRIPTS) -> str:
    """`waiting` are the variants that there are and of which no row is kept; `scripts` is docs/findings/."""
    held: dict[str, list[Row]] = {}
    for row in rows:
        held.setdefault(row.implementation, []).append(row)
    told = [
        name
        for name, own in sorted(held.items())
        if any(_says_something(row) for row in own) or scripts_of(name, scripts)
    ]
    return _PAGE.format(
        matrix=matrix(rows),
        waiting=_unjudged(waiting),
        sections="\n".join(_section(name, sorted(held[name], key=lambda row: row.variant), scripts) for name in told),
    )


def _unjudged(waiting: Collection[str]) -> str:
    """What is said of the variants that were not judged yet; "" where there are none."""
    if not waiting:
        return ""
    names = ", ".join(f"`{name}`" for name in sorted({variant.partition(":")[0] for variant in waiting}))
    return f"\nNot judged yet: {len(waiting)} ways to run {names}.\n"


def matrix(rows: Collection[Row]) -> str:
    """A line for each row: what README shows."""
    lines = []
    for row in sorted(rows, key=lambda row: row.variant):
        deviating = ", ".join(sorted({f"`{seen.deviation}`" for seen in row.deviates}))
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


def short(row: Row) -> str:
    """The variant, where it is not the implementation's first."""
    implementation = read_implementation_manifest(IMPLS / row.implementation)
    return row.implementation + variant_suffix(implementation.choices, row.choices)


@cache
def entries(implementation: str) -> dict[str, Entry]:
    """Reason → what a manifest says of it, of all that is unsupported."""
    return {entry.reason: entry for entry in read_implementation_manifest(IMPLS / implementation).unsupported}


def scripts_of(name: str, folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{name}-*.py"))


def _says_something(row: Row) -> bool:
    return bool(row.deviates or row.unsupported or row.failed)


def _versions(row: Row) -> str:
    shown = [f"{name} {version}" for name, version in row.versions.items() if name != "numpy"]
    return ", ".join(shown)


def _section(name: str, rows: list[Row], scripts: Path) -> str:
    implementation = read_implementation_manifest(IMPLS / name)
    parts = [f"## {implementation.title}\n\n`{name}`, {_versions(rows[0])}. {implementation.homepage}\n"]
    if deviating := list(_deviating(rows, scripts)):
        parts.append("Deviates by:\n\n" + "\n".join(deviating) + "\n")
    if left := list(_not_asked(rows, scripts)):
        parts.append("Not asked, or failed:\n\n" + "\n".join(left) + "\n")
    if beside := list(_beside(implementation, rows, scripts)):
        parts.append("Beside the cases of the table:\n\n" + "\n".join(beside) + "\n")
    return "\n".join(parts)


def _beside(implementation: Implementation, rows: list[Row], scripts: Path) -> Iterator[str]:
    """What the manifest says of formats and levels that the rows do not have, and scripts of what it does not say."""
    told = {reason.text for row in rows for reason in (*row.unsupported, *row.failed)}
    told |= {entry.reason for row in rows for seen in row.deviates if (entry := _entry_of(row, seen.deviation))}
    every = (*implementation.unsupported, *implementation.deviations)
    beside = {entry.reason: entry for entry in every if entry.script and entry.reason not in told}
    for entry in beside.values():
        yield _point(*_entry(entry, "", scripts))
    named = {entry.script for entry in every}
    for path in scripts_of(implementation.name, scripts):
        if path.name not in named:
            yield _point(_shown(path.name, scripts))


def _entry_of(row: Row, deviation: str) -> Entry | None:
    return next((entry for entry in _told(row).deviations if entry.deviation == deviation), None)


def _deviating(rows: list[Row], scripts: Path) -> Iterator[str]:
    seen: dict[str, list[tuple[Row, Seen]]] = {}
    for row in rows:
        for one in row.deviates:
            seen.setdefault(one.deviation, []).append((row, one))
    for deviation, found in sorted(seen.items()):
        where = _where([row for row, _ in found], rows)
        distances = (_distance(dtype, [one for _, one in found if one.dtype == dtype]) for dtype in _dtypes(found))
        entry = _entry_of(found[0][0], deviation)
        said = _entry(entry, "", scripts) if entry else [f"{catalogue()[deviation].sentence}. **unexplained**"]
        yield _point(f"`{deviation}`{where}. {said[0]}", f"{'; '.join(distances)}.", *said[1:])


def _point(*lines: str) -> str:
    return "- " + "\n  ".join(lines)


def _entry(entry: Entry, seen: str, scripts: Path) -> list[str]:
    """What a manifest's entry says, and after its reason what was seen of it."""
    lines = [f"{NEW if entry.new else ''}{entry.reason}{seen}. {entry.link}"]
    return [*lines, _shown(entry.script, scripts)] if entry.script else lines


def _shown(script: str, scripts: Path) -> str:
    said = " ".join((ast.get_docstring(ast.parse((scripts / script).read_text(encoding="utf-8"))) or "").split())
    return f"[{script}](findings/{script}): {said}"


def _where(found: Iterable[Row], rows: list[Row]) -> str:
    """The variants that have it; "" where all do."""
    ways = sorted({short(row) for row in found})
    return "" if len(ways) == len(rows) else f" ({', '.join(f'`{way}`' for way in ways)})"


def _told(row: Row) -> Implementation:
    return find_implementation(row.variant)[1]


def _dtypes(found: Iterable[tuple[Row, Seen]]) -> list[str]:
    return sorted({one.dtype for _, one in found}, reverse=True)


def _distance(dtype: str, found: list[Seen]) -> str:
    distances = [one.sigma for one in found if one.sigma is not None]
    most = max(found, key=lambda one: one.checks)
    size = f"up to {max(distances):.2g} σ" if distances else "not finite"
    return f"{dtype}: {size}, {most.checks} checks ({most.cases})"


def _not_asked(rows: list[Row], scripts: Path) -> Iterator[str]:
    known = entries(rows[0].implementation)
    ways: dict[str, list[tuple[Row, ReasonCount]]] = {}
    for row in rows:
        for reason in (*row.unsupported, *row.failed):
            ways.setdefault(reason.text, []).append((row, reason))
    for text, found in ways.items():
        where = _where([row for row, _ in found], rows)
        checks, cases = max(((reason.checks, reason.cases) for _, reason in found), key=lambda one: one[0])
        if found[0][1].kind in WHATEVER_IS_DECLARED:
            yield f"- {text}{where}: {checks} checks. {RULE}"
            continue
        seen = f"{where}: {checks} checks ({cases})"
        yield _point(*(_entry(known[text], seen, scripts) if text in known else [f"{text}{seen}. **unexplained**"]))


_PAGE = """# Findings: what the layers that people use do

Generated by `python -m encoder_conformance.survey` of the rows that it keeps in docs/findings.json; a test checks that
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


README = ROOT / "README.md"
BEGIN, END = "<!-- matrix: written by python -m encoder_conformance.survey -->", "<!-- end of matrix -->"


def write_into_readme(table: str) -> None:
    text = README.read_text(encoding="utf-8")
    README.write_text(with_table(text, table), encoding="utf-8")


def with_table(text: str, table: str) -> str:
    """Raises InputError where the marks are missing."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise InputError("has not one of each mark of the matrix", where="README.md", hint=f"write {BEGIN} and {END}")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}"
