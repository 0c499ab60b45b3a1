"""Generates `docs/deviations-16-bits.md`: which deviations of additions bfloat16 and float16 show.

    python -m tools.pages.sixteen_bits       simulates them in the cases that are asked in 16 bits

It takes two minutes. A test plays a part of it again.
"""

import os
from collections.abc import Iterable
from functools import cache

from encoder_conformance.oracle.catalogue import seen_in_evaluation
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.load import constants, load
from tools import ROOT
from tools.kill import Best, Kill, best, kills
from tools.pages.tables import markdown, sigma

PAGE = ROOT / "docs" / "deviations-16-bits.md"
NARROW: tuple[DtypeName, ...] = ("bfloat16", "float16")
FAR = 200
"""σ from which a format shows a deviation (V-14)."""


def of_layers_with_additions() -> list[Case]:
    """The cases with a golden, whatever they are asked in: those that V-14 is about."""
    return [case for case in load().with_golden.values() if case.layer.additions and case.situation.batch]


@cache
def asked_in(dtype: DtypeName) -> frozenset[str]:
    """The ids of the cases of layers with additions (L-7) whose goldens judge a case in the format."""
    cases = load().cases.values()
    return frozenset(case.golden_id for case in cases if case.layer.additions and dtype in case.situation.dtypes)


@cache
def of_additions() -> tuple[str, ...]:
    """The deviations that no layer without additions can have."""
    plain = [case for case in load().with_golden.values() if case.situation.batch and not case.layer.additions]
    return tuple(
        name for name, deviation in seen_in_evaluation().items() if not any(changes(case, deviation) for case in plain)
    )


def by_format(found: Iterable[Kill]) -> dict[str, dict[str, Best]]:
    """Format → deviation → its best cases, of those that are asked in the format."""
    played = list(found)
    return {dtype: _best(kill for kill in played if kill.case in asked_in(dtype))[dtype] for dtype in NARROW}


def anywhere(found: Iterable[Kill]) -> dict[str, dict[str, Best]]:
    """The same of every case that was played, asked in the format or not."""
    return _best(found)


def _best(found: Iterable[Kill]) -> dict[str, dict[str, Best]]:
    played, limit = list(found), constants().rms_limit
    return {dtype: best([kill for kill in played if kill.dtype == dtype], limit) for dtype in NARROW}


def page(played: Iterable[Kill]) -> str:
    """The page as Markdown, of what was played in every case of V-14."""
    kept, names = list(played), of_additions()
    found, reach = by_format(kept), anywhere(kept)
    seen = [name for name in names if any(largest(rows.get(name)) > constants().rms_limit for rows in found.values())]
    silent = [name for name in names if name not in seen and any(name in rows for rows in found.values())]
    nowhere = [name for name in names if not any(name in rows for rows in found.values())]
    return _PAGE.format(
        cases=len(frozenset[str]().union(*map(asked_in, NARROW))),
        all=len(names),
        far=FAR,
        played=len(seen) + len(silent),
        every=len({kill.case for kill in kept}),
        counts=markdown(
            ("format", "seen", f"by {FAR} σ or more", "can show (V-14)"),
            [(*_counts(dtype, found[dtype]), str(sum(_can(row) for row in reach[dtype].values()))) for dtype in NARROW],
        ),
        cannot=_cannot(reach),
        table=table({name: {dtype: found[dtype].get(name) for dtype in NARROW} for name in seen}),
        silent=_listed(silent),
        nowhere=_listed(nowhere),
    )


def table(rows: dict[str, dict[str, Best | None]]) -> str:
    """A row per deviation, those first that bfloat16 shows least."""
    headings = ["deviation", *(f"{dtype}, {place}" for dtype in NARROW for place in ("output", "any stage"))]
    ordered = sorted(rows.items(), key=lambda row: largest(row[1]["bfloat16"]))
    return markdown(
        tuple(headings),
        [(f"`{name}`", *(cell for dtype in NARROW for cell in _cells(found[dtype]))) for name, found in ordered],
    )


def largest(found: Best | None) -> float:
    """The largest σ of a deviation, at the output or at any stage; 0 of one that was not played."""
    parts = (found.output, found.stages) if found else ()
    return max((part.sigma for part in parts if part), default=0.0)


def _cells(found: Best | None) -> tuple[str, str]:
    if found is None:
        return "–", "–"
    output = sigma(found.output.sigma) if found.output else "–"
    at = f", `{found.stages.stage}`" if found.stages and found.stages.stage else ""
    return output, f"{sigma(found.stages.sigma)} {found.stages.case}{at}" if found.stages else "–"


def _can(row: Best | None) -> bool:
    return largest(row) >= FAR


def _cannot(reach: dict[str, dict[str, Best]]) -> str:
    """A row per deviation that a format cannot show, with the most that any case shows of it there."""

    def most(row: Best | None) -> str:
        if row is None or _can(row):
            return "–"
        kill = max((each for each in (row.output, row.stages) if each), key=lambda each: each.sigma)
        return f"{sigma(kill.sigma)} {kill.case}" + (f", `{kill.stage}`" if kill.stage else "")

    rows = {name: [reach[dtype].get(name) for dtype in NARROW] for name in of_additions()}
    short = {name: row for name, row in rows.items() if not all(map(_can, row))}
    ordered = sorted(short.items(), key=lambda each: [largest(row) for row in each[1]])
    return markdown(("deviation", *NARROW), [(f"`{name}`", *map(most, row)) for name, row in ordered])


def _counts(dtype: str, rows: dict[str, Best]) -> tuple[str, ...]:
    shown = [largest(row) for row in rows.values() if largest(row) > constants().rms_limit]
    return dtype, str(len(shown)), str(sum(value >= FAR for value in shown))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) + "."


_PAGE = """# Deviations in 16 bits

Generated by `python -m tools.pages.sixteen_bits`. {all} deviations are of additions (L-7): no layer without one can
have them. {played} are played in the {cases} cases of such layers that are asked in bfloat16 and float16, and judged as
an answer in that format is: by the format's own σ (C-5). [deviations.md](deviations.md) has float32 and float64.

A bfloat16 number has 8 binary digits, and rounding one moves it by up to 1/512 of itself: what changes a tensor by a
tenth is some 50 σ there. Few are at {far} σ, and none needs to be: a check fails from 2 σ on. A format *can show* a
deviation where any of the {every} cases with a golden of such layers does by {far} σ, asked in the format or not. Then
a case that is asked in it does too. Numbers of other sizes would show more of them, such as layer scales of 2^−8, or
scores that leave a softmax one key. No case of these layers has such.

{counts}

## Deviation by deviation

The case that shows it best, in σ (rms of a tensor; ∞ is NaN or another shape), those first that bfloat16 shows least.

{table}

## What a format cannot show by {far} σ

The most that any of the {every} cases shows of it in the format; – where it can show it.

{cannot}

## Within the noise of both formats

They say something else, and 16 bits do not show it in these cases: {silent}

## Of no layer or situation that is asked in 16 bits

float32 and float64 show them: {nowhere}
"""


if __name__ == "__main__":
    jobs = os.cpu_count() or 1
    PAGE.write_text(page(kills(list(of_additions()), of_layers_with_additions(), NARROW, jobs)), encoding="utf-8")
