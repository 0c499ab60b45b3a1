"""docs/deviations-16-bits.md is what the catalogue gives today, of one case, and leaves no deviation out. What a format
can show, a case that is asked in it shows (V-14)."""

import re
from pathlib import Path

import pytest

from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.spec.load import load
from tools.kill import kills
from tools.pages.sixteen_bits import FAR, NARROW, anywhere, by_format, largest, of_additions, table

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "deviations-16-bits.md").read_text(encoding="utf-8")
CASE = "pre-layer-scale/no-mask"


def rows(text: str) -> dict[str, list[str]]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {cells[0].strip("`"): cells[1:] for cells in lines}


def of_section(title: str) -> dict[str, list[str]]:
    return rows(PAGE.partition(f"## {title}")[2].partition("\n## ")[0])


def test_each_deviation_is_in_the_table_or_in_a_list() -> None:
    assert {name for name in re.findall(r"`([a-z0-9-]+)`", PAGE) if name in catalogue()} == set(of_additions())


@pytest.mark.release
def test_one_case_gives_what_the_page_says() -> None:
    """Of deviations whose best case it is, in both formats."""
    said = of_section("Deviation by deviation")
    names = [name for name, cells in said.items() if all(CASE in cells[place] for place in (1, 3))]
    assert names
    found = by_format(kills(names, [load().cases[CASE]], NARROW, 1))
    today = rows(table({name: {dtype: found[dtype].get(name) for dtype in NARROW} for name in names}))
    for name in names:
        for place in (1, 3):
            kept, now = (float(cells[name][place].split()[0]) for cells in (said, today))
            assert kept == pytest.approx(now, rel=0.3), name


@pytest.mark.parametrize("dtype", NARROW)
def test_what_a_format_can_show_is_shown_where_it_is_asked(dtype: str) -> None:
    """Each deviation is at 200 σ in a case that is asked, or the page has the most that any case shows of it."""
    at = NARROW.index(dtype)
    asked, short = of_section("Deviation by deviation"), of_section(f"What a format cannot show by {FAR} σ")
    shown = {name for name, cells in asked.items() if _largest(cells[2 * at : 2 * at + 2]) >= FAR}
    cannot = {name: cells[at] for name, cells in short.items() if cells[at] != "–"}
    assert shown | cannot.keys() == set(of_additions())
    assert not shown & cannot.keys()
    assert all(float(cell.split()[0]) <= FAR for cell in cannot.values())


@pytest.mark.release
def test_no_case_shows_more_than_the_page_says_any_can() -> None:
    """Of one case that is asked in neither format."""
    case = "pre-layer-scale/low-variance"
    short = of_section(f"What a format cannot show by {FAR} σ")
    names = [name for name, cells in short.items() if case in cells[0]]
    assert len(names) > 3
    found = anywhere(kills(names, [load().cases[case]], NARROW, 1))
    for name in names:
        for at, dtype in enumerate(NARROW):
            said = short[name][at].split()[0]
            assert largest(found[dtype][name]) == pytest.approx(FAR if said == "–" else float(said), rel=0.3) or (
                said == "–" and largest(found[dtype][name]) > FAR
            ), (name, dtype)


def _largest(cells: list[str]) -> float:
    return max((float(cell.split()[0].replace("∞", "inf")) for cell in cells if cell != "–"), default=0.0)
