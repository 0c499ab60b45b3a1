"""docs/rewritings.md: the largest error of each rewriting in each format, and what is accused."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.rewritings.results import DTYPES, Largest, Results, Row
from tools.pages.tables import markdown

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, KEPT = DOCS / "rewritings.md", DOCS / "rewritings.json"


def read() -> Results:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    rows = {}
    for name, row in kept.pop("rows").items():
        by_format = {dtype: Largest(**largest) for dtype, largest in row.pop("by_format").items()}
        rows[name] = Row(**row, by_format=by_format)
    return Results(**kept, rows=rows)


def write(results: Results) -> None:
    KEPT.write_text(json.dumps(asdict(results), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")


def page(results: Results) -> str:
    honest = results.honest()
    tensors = sum(largest.tensors for row in honest.values() for largest in row.by_format.values())
    return _PAGE.format(
        honest=len(honest),
        tensors=tensors,
        goldens=results.goldens,
        seeds=", ".join(map(str, results.seeds)),
        accused="\n".join(f"- {line}" for line in results.accused()) or "None is accused.",
        largest=markdown(("format", "largest rms σ", "largest maximum σ"), list(_extremes(honest))),
        rows=markdown(
            ("step", "rewriting", "what is computed", *DTYPES),
            [(row.group, name, row.says, *_cells(row)) for name, row in honest.items()],
        ),
        less_exact=markdown(
            ("clause", "rewriting", "what is computed", *DTYPES),
            [(row.less_exact, name, row.says, *_accused_cells(row)) for name, row in results.less_exact().items()],
        ),
    )


def _extremes(honest: Mapping[str, Row]) -> Iterator[tuple[str, str, str]]:
    for dtype in DTYPES:
        found = {name: row.by_format[dtype] for name, row in honest.items() if dtype in row.by_format}
        if found:
            by_rms, by_max = max(found, key=lambda name: found[name].rms), max(found, key=lambda name: found[name].max)
            yield dtype, f"{found[by_rms].rms} ({by_rms})", f"{found[by_max].max} ({by_max})"


def _cells(row: Row) -> Iterator[str]:
    for dtype in DTYPES:
        largest = row.by_format.get(dtype)
        yield f"{largest.rms} / {largest.max}" if largest else "–"


def _accused_cells(row: Row) -> Iterator[str]:
    for errors, dtype in zip(_cells(row), DTYPES, strict=True):
        largest = row.by_format.get(dtype)
        if largest is None:
            yield errors
            continue
        not_finite = f", {largest.not_finite} not finite" if largest.not_finite else ""
        yield f"{errors}; {largest.accused} of {largest.tensors} accused{not_finite}"


_PAGE = """# Rewritings: honest layers, and whether any is accused

`python -m benchmarks.rewritings` writes this page. Each rewriting is a whole layer in PyTorch with one step done in
another way that people use: another order of summation, another algebraic form, a fused or a blocked form. Each is
judged by the public judging functions, over the {goldens} goldens of the small required cases, at input seeds {seeds},
in each format in which a case asks for that golden: every output, every stage that it has, and every gradient. Cases
that differ only in how they are given share a golden, and so the numbers. Two limits hold for every tensor: rms 2 σ,
maximum 10 σ.

{honest} rewritings, {tensors} judged tensors.

{accused}

{largest}

## By rewriting

Each cell has the largest rms and the largest maximum, in σ. – stands where no such layer is asked in that format, or
PyTorch has not the operation in it.

{rows}

## Less exact

What these compute is the same in exact arithmetic, and loses more in any other than a clause of
[the specification](../specs/README.md) allows. Each cell has the largest rms and maximum, in σ, and how many tensors of
all do not conform.

{less_exact}
"""
