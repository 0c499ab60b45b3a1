"""One thing has one number, on every page: what a page counts is what its owner counts today."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

from encoder_conformance.judging.core.sensitivity import read_sensitivity
from encoder_conformance.oracle.catalogue import catalogue, seen_in_evaluation
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import clauses, load
from tools.core.sensitivity import CONFORMING_RMS, MARGIN
from tools.pages.sixteen_bits import of_additions

ROOT = Path(__file__).resolve().parents[3]
OWN_WORDS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "mkdocs.yml", "specs/README.md")
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (*(ROOT / name for name in OWN_WORDS), *sorted((ROOT / "docs").glob("*.md")))
}


def required() -> int:
    return sum(case.is_required for case in load().cases.values())


def detectable(dtype: str) -> Callable[[], int]:
    return lambda: read_sensitivity().in_format(dtype).bit_count()


def seen_by_required() -> int:
    """The deviations that small required cases see, and so a run excludes."""
    table = read_sensitivity()
    return len({name for dtype in FORMATS for name in table.names(table.in_format(dtype))})


def drawn(which: str) -> Callable[[], int]:
    """How many layers docs/pictures/sigma.svg shows, or how far the weakest wrong one is."""
    sigma = runpy.run_path(str(ROOT / "docs" / "pictures" / "sigma.py"))
    return lambda: round(min(sigma["wrong"]())) if which == "weakest" else len(sigma[which]())


COUNTED: dict[str, tuple[Callable[[], int], tuple[str, ...]]] = {
    "the catalogue": (lambda: len(catalogue()), (r"(\d+) deviations,\neach a YAML file",)),
    "of additions": (lambda: len(of_additions()), (r"(\d+) deviations are of additions",)),
    "played": (lambda: len(seen_in_evaluation()), (r"(\d+) of them show outside",)),
    "in any format": (seen_by_required, (r"(\d+) deviations that any", r" \d+ / (\d+) +\d+ / \d+  ")),
    "in float64": (detectable("float64"), (r"\| `float64` \| \d+ \| (\d+) \|",)),
    "in float32": (detectable("float32"), (r"\| `float32` \| \d+ \| (\d+) \|", r"(\d+) wrong ones at \d+ σ")),
    "the margin": (lambda: round(read_sensitivity().margin), (r"at\s+least\s+(\d+) σ", r"the same (\d+) σ")),
    "over right layers": (lambda: round(MARGIN / CONFORMING_RMS), (r"(\d+) times the largest error of a conforming",)),
    "right layers": (drawn("right"), (r"(\d+) right layers",)),
    "the weakest": (drawn("weakest"), (r"wrong ones at (\d+) σ", r"weakest wrong layer is at (\d+) σ")),
    "cases": (lambda: len(load().cases), (r"\d+ of (\d+) cases[,.]", r"\((\d+) in all\)", r"cases, of (\d+), whose")),
    "required cases": (required, (r"\d+ of (\d+) required", r"all (\d+) that an", r"`\d+ of (\d+) checks conform`")),
    "the core": (lambda: len(load().core), (r"(\d+) of \d+ required", r"\*: (\d+) of", r"(\d+) cases that see every")),
    "clauses": (lambda: len(clauses()), (r" \d+ / \d+ +\d+ / (\d+)  ",)),
}
"""What is counted → its owner, and how pages say it."""


@pytest.mark.parametrize("what", COUNTED)
def test_pages_say_what_its_owner_counts(what: str) -> None:
    count, wordings = COUNTED[what]
    for wording in wordings:
        said = [(page, int(number)) for page, text in PAGES.items() for number in re.findall(wording, text)]
        assert said, f"no page says {wording}"
        assert {number for _, number in said} == {count()}, said


@pytest.mark.parametrize("page", PAGES)
def test_a_page_counts_no_deviations_that_nobody_checks(page: str) -> None:
    """A page in one's own words says that there are many, or its number is of `COUNTED`."""
    wordings = [wording for _, wordings in COUNTED.values() for wording in wordings]
    checked = {match.span(1) for wording in wordings for match in re.finditer(wording, PAGES[page])}
    for counted in re.finditer(r"\b(\d{2,}) (?:of the \d+ |known )?(?:deviations|ways to be wrong)", PAGES[page]):
        assert counted.span(1) in checked, counted[0]


def test_the_readme_compares_tolerances_with_sigma_as_the_table_does() -> None:
    """On the same tensors: what each misses of the deviations, and the right checks that it calls wrong."""
    section = PAGES["docs/deviations.md"].split("## What fixed tolerances miss")[1].split("\n## ")[0]
    rows = {
        cells[0]: cells[1:]
        for cells in re.findall(r"^\| (\S.*?)" + r" \| (\d+)[^|]*" * 7 + r" \|$", section, re.MULTILINE)
    }
    sigma, tolerance = ([int(cell) for cell in rows[rule]] for rule in ("σ", "atol 1e-4"))
    assert "there is one that sees what σ sees,\n`atol=1e-4`" in PAGES["README.md"]
    assert tolerance[1] == sigma[1]
    assert "it calls right stages and gradients wrong" in PAGES["README.md"]
    assert tolerance[4] == 0 < min(tolerance[5:])
    assert (
        "no false\nalarm. On ordinary inputs it sees wrong epsilons that `atol=1e-4` lets through" in PAGES["README.md"]
    )
    assert sigma[4:] == [0, 0, 0]
    rule_by_rule = PAGES["docs/deviations.md"].split("## Rule by rule")[1].splitlines()
    epsilons = [line.strip("| ").split(" | ") for line in rule_by_rule if line.startswith("| `norm-eps-")]
    assert any(cells[5].startswith("·") and cells[7].startswith("●") for cells in epsilons)
