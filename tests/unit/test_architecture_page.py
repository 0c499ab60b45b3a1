"""docs/architecture.md names every room and no other, and every file that it sends a reader to exists."""

import re
from pathlib import Path

import pytest

from encoder_conformance.platform.paths import PACKAGE

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: an installed package has no docs/."""
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def table(heading: str) -> dict[str, str]:
    """The rows of the first table below a heading: first column → second."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", section, re.MULTILINE)
    return dict(rows[1:])


def test_each_room_is_on_the_page_and_no_other() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"_specs"}
    assert {name.strip("`") for name in table("Rooms")} == rooms


def test_each_room_has_one_sentence() -> None:
    for name, sentence in table("Rooms").items():
        assert sentence.endswith("."), name
        assert sentence.count(". ") == 0, name


def test_each_change_names_a_place() -> None:
    changes = table("To change X, open Y")
    assert len(changes) >= 10
    assert all("`" in place or "](" in place for place in changes.values())


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:harness|impls|specs|tests|tools)/[\w./]*)`", PAGE))))
def test_a_file_that_the_page_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z]\w*/[\w/]+\.py)`", PAGE))))
def test_a_module_that_the_page_names_exists(path: str) -> None:
    assert (PACKAGE / path).is_file() or (ROOT / path).is_file()
