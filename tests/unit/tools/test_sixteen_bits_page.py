"""docs/deviations-16-bits.md is what the catalogue gives today, of one case; and no deviation is left out."""

import re
from pathlib import Path

import pytest

from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.spec.load import load
from tools.kill import kills
from tools.pages.sixteen_bits import NARROW, by_format, of_additions, table

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "deviations-16-bits.md").read_text(encoding="utf-8")
CASE = "pre-layer-scale/no-mask"


def rows(text: str) -> dict[str, list[str]]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {cells[0].strip("`"): cells[1:] for cells in lines}


def test_each_deviation_is_in_the_table_or_in_a_list() -> None:
    assert {name for name in re.findall(r"`([a-z0-9-]+)`", PAGE) if name in catalogue()} == set(of_additions())


def test_one_case_gives_what_the_page_says() -> None:
    """Of deviations whose best case it is, in both formats."""
    names = [name for name, cells in rows(PAGE).items() if all(CASE in cells[place] for place in (1, 3))]
    assert names
    found = by_format(kills(names, [load().cases[CASE]], NARROW, 1))
    today = rows(table({name: {dtype: found[dtype].get(name) for dtype in NARROW} for name in names}))
    for name in names:
        for place in (1, 3):
            kept, now = (float(cells[name][place].split()[0]) for cells in (rows(PAGE), today))
            assert kept == pytest.approx(now, rel=0.3), name
